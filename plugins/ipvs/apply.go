// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/pointsman/pointsman/sdk"
)

// write takes the steps of p. What a step of one Service says of that Service alone is
// returned by name; the steps after it go on without that virtual server.
func (s *side) write(ctx context.Context, p plan) (map[sdk.Name]error, error) {
	w := writer{side: s, bad: make(map[sdk.Name]error), skip: make(map[server]bool)}
	for len(p) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.host.env.Step()
		n, err := w.next(ctx, p)
		if err != nil {
			return nil, err
		}
		p = p[n:]
	}
	s.book.park(s.host.plugin.parked)
	s.book.marks.settle(s.book.pieces)
	s.book.touched = newTouched()
	for at := range w.skip {
		s.book.touched.servers[at] = true
	}
	return w.bad, nil
}

// A writer takes the steps of one plan.
type writer struct {
	*side
	bad  map[sdk.Name]error
	skip map[server]bool
}

// next takes the first step of p, or as many as can be taken at once.
func (w *writer) next(ctx context.Context, p plan) (int, error) {
	var err error
	switch p[0].verb {
	case makeSet, replaceSet, addEntry, removeEntry:
		return w.inSets(ctx, p)
	case writeRules:
		err = w.rules.Restore(ctx, p[0].rules.Script(w.rules.place().Backend))
	case makeDevice, bind, unbind:
		err = w.onDevice(p[0])
	default:
		return w.onServers(p)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p[0], err)
	}
	w.book.done(p[0])
	return 1, nil
}

// few is up to how many steps are taken one by one. Beyond, it is cheaper to hand over
// all of them.
const few = 8

// inSets takes all steps about sets that follow one another.
func (w *writer) inSets(ctx context.Context, p plan) (int, error) {
	n := 0
	alone := true
	var lines strings.Builder
	for n < len(p) && p[n].verb <= removeEntry {
		lines.WriteString(p[n].command())
		alone = alone && p[n].verb >= addEntry
		n++
	}
	alone = alone && n <= few
	if !alone {
		if err := w.kernel.Restore(ctx, lines.String()); err != nil {
			return 0, fmt.Errorf("%s: %w", p[0], err)
		}
	}
	for _, s := range p[:n] {
		if alone {
			if err := w.inSet(s); err != nil {
				return 0, fmt.Errorf("%s: %w", s, err)
			}
		}
		w.book.done(s)
	}
	return n, nil
}

func (w *writer) inSet(s step) error {
	if s.verb == addEntry {
		return w.kernel.Add(s.entry, s.note)
	}
	return w.kernel.Remove(s.entry)
}

// command is a step about sets, as ipset's restore takes it.
func (s step) command() string {
	switch s.verb {
	case makeSet:
		return s.set.create(s.family, s.set.in(s.family)) + "\n"
	case replaceSet:
		return s.set.replace(s.family, s.fill)
	case addEntry:
		return s.entry.command(s.note) + "\n"
	}
	return fmt.Sprintf("del -exist %s %s\n", s.entry.set.in(s.entry.family), s.entry)
}

func (w *writer) onDevice(s step) error {
	switch s.verb {
	case makeDevice:
		return w.kernel.MakeDevice()
	case bind:
		return w.kernel.Bind(s.addr)
	}
	return w.kernel.Unbind(s.addr)
}

// onServers takes the steps about virtual servers that follow one another, as many as
// go at once. What the kernel does not like in a crowd is taken again alone: then what
// is done already is no error.
func (w *writer) onServers(p plan) (int, error) {
	n := 0
	var now []step
	for ; n < len(p) && p[n].verb.onServer() && len(now) < atOnce; n++ {
		if !w.skip[p[n].server] {
			now = append(now, p[n])
		}
	}
	crowd := len(now) > few
	var said []error
	if crowd {
		var err error
		if said, err = w.kernel.Send(now); err != nil {
			return 0, fmt.Errorf("%s: %w", p[0], err)
		}
	}
	for i, s := range now {
		if err := w.took(s, crowd && said[i] == nil); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// took notes a step that is done, or takes it, unless its virtual server is skipped.
func (w *writer) took(s step, done bool) error {
	_, there := w.book.have.servers[s.server]
	switch {
	case w.skip[s.server] && !(done && there):
		return nil
	case !done:
		if err := w.onServer(s); err != nil {
			return w.blame(s, err)
		}
	}
	w.book.done(s)
	return nil
}

func (w *writer) onServer(s step) error {
	switch s.verb {
	case addServer:
		return w.kernel.AddServer(s.server, s.how)
	case setServer:
		return w.kernel.SetServer(s.server, s.how)
	case removeServer:
		return w.kernel.RemoveServer(s.server)
	case addReal:
		return w.kernel.AddReal(s.server, s.real, s.weight)
	case weighReal:
		return w.kernel.WeighReal(s.server, s.real, s.weight)
	}
	return w.kernel.RemoveReal(s.server, s.real)
}

// blame finds whose step it was that failed. An error that says something of the
// node, or of what we know of it, is nobody's.
func (w *writer) blame(s step, err error) error {
	c, ok := w.book.places[s.server].first()
	switch {
	case !ok, errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ESRCH):
		return fmt.Errorf("%s: %w", s, err)
	case errors.Is(err, syscall.ENOENT) && (s.verb == addServer || s.verb == setServer):
		err = noScheduler(s.how.scheduler)
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOMEM):
		return fmt.Errorf("%s: %w", s, err)
	}
	w.bad[c.name] = fmt.Errorf("%s: %w", s, err)
	w.skip[s.server] = true
	return nil
}

func noScheduler(name string) *sdk.Refusal {
	return &sdk.Refusal{Field: "scheduler", Why: "the kernel has no scheduler " + name + ", or cannot load it", Try: "modprobe ip_vs_" + name}
}
