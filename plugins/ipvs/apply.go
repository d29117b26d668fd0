// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
)

// write takes the steps of p. What a step of one Service says of that Service alone is
// returned by name; the steps after it go on without that virtual service.
func (f *family) write(ctx context.Context, p plan) (map[sdk.Name]error, error) {
	w := writer{family: f, bad: make(map[sdk.Name]error), skip: make(map[serviceKey]bool)}
	for len(p) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f.session.env.Step()
		n, err := w.next(ctx, p)
		if err != nil {
			return nil, err
		}
		p = p[n:]
	}
	if err := f.rules.Write(ctx, nil); err != nil { // what was doubted, and is as it should be, is doubted no more
		return nil, err
	}
	f.objects.park(f.session.plugin.parked)
	f.objects.marks.settle(f.objects.desired)
	f.objects.touched = newTouched()
	for at := range w.skip {
		f.objects.touched.services[at] = true
	}
	return w.bad, nil
}

// A writer takes the steps of one plan.
type writer struct {
	*family
	bad  map[sdk.Name]error
	skip map[serviceKey]bool
}

// next takes the first step of p, or as many as can be taken at once.
func (w *writer) next(ctx context.Context, p plan) (int, error) {
	var err error
	switch p[0].verb {
	case makeSet, replaceSet, addEntry, removeEntry:
		return w.inSets(ctx, p)
	case writeRules, removeRelics:
		err = w.rules.Write(ctx, p[0].rules)
	case removeRelicSets:
		w.dropRelics(ctx, p[0].relics)
	case makeDevice, bind, unbind:
		err = w.onDevice(p[0])
	default:
		return w.onServices(p)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p[0], err)
	}
	w.objects.done(p[0])
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
		w.objects.done(s)
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

// dropRelics removes sets of kube-proxy's. One to which another program's rule leads stays: that
// costs no Service.
func (w *writer) dropRelics(ctx context.Context, sets []string) {
	err := w.kernel.Restore(ctx, destroy(sets))
	switch {
	case err == nil:
	case len(sets) == 1:
		w.session.env.Log.Info("a set that kube-proxy left stays", "set", sets[0], "err", err)
	default: // the first that stays has kept those after it
		for _, set := range sets {
			w.dropRelics(ctx, []string{set})
		}
	}
}

// destroy are the lines that remove sets.
func destroy(sets []string) string { return "destroy " + strings.Join(sets, "\ndestroy ") + "\n" }

func (w *writer) onDevice(s step) error {
	switch s.verb {
	case makeDevice:
		return w.kernel.MakeDevice()
	case bind:
		return w.kernel.Bind(s.addr)
	}
	return w.kernel.Unbind(s.addr)
}

// onServices takes the steps about virtual services that follow one another, as many as
// go at once. What the kernel refuses among others is taken again alone: then what is
// done already is no error.
func (w *writer) onServices(p plan) (int, error) {
	n := 0
	var now []step
	for ; n < len(p) && p[n].verb.onService() && len(now) < atOnce; n++ {
		if !w.skip[p[n].service] {
			now = append(now, p[n])
		}
	}
	batch := len(now) > few
	var answers []error
	if batch {
		var err error
		if answers, err = w.kernel.Send(now); err != nil {
			return 0, fmt.Errorf("%s: %w", p[0], err)
		}
	}
	for i, s := range now {
		if err := w.took(s, batch && answers[i] == nil); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// took notes a step that is done, or takes it, unless its virtual service is skipped.
func (w *writer) took(s step, done bool) error {
	_, there := w.objects.have.services[s.service]
	switch {
	case w.skip[s.service] && !(done && there):
		return nil
	case !done:
		if err := w.kernel.do(s); err != nil {
			return w.blame(s, err)
		}
	}
	w.objects.done(s)
	return nil
}

// blame finds the Service whose step failed. An error that says something of the
// node, or of what is known of it, belongs to none.
func (w *writer) blame(s step, err error) error {
	c, ok := w.objects.owner(s.service)
	switch {
	case !ok, errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ESRCH):
		return fmt.Errorf("%s: %w", s, err)
	case errors.Is(err, syscall.ENOENT) && (s.verb == addService || s.verb == setService):
		err = noScheduler(s.scheduling.scheduler)
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOMEM):
		return fmt.Errorf("%s: %w", s, err)
	}
	w.bad[c.name] = fmt.Errorf("%s: %w", s, err)
	w.skip[s.service] = true
	return nil
}

func noScheduler(name string) *sdk.Refusal {
	return &sdk.Refusal{Field: "scheduler", Why: "the kernel has no scheduler " + name + ", or cannot load it", Try: "modprobe ip_vs_" + name}
}

// A verb is one thing that can be done to the kernel.
type verb uint8

const (
	makeSet    verb = iota + 1
	replaceSet      // with one of ours, filled
	addEntry
	removeEntry
	addService
	setService
	removeService
	addDest
	weighDest
	removeDest
	bind
	unbind
	makeDevice
	writeRules
	removeRelics    // rules of a kube-proxy in its ipvs mode, whose place is taken
	removeRelicSets // its sets, to which no rule of its own leads any more
)

// onService reports whether it is done to a virtual service.
func (v verb) onService() bool { return v >= addService && v <= removeDest }

// A step is one thing to do, and to what.
type step struct {
	verb       verb
	set        set
	entry      entry
	note       note
	service    serviceKey
	scheduling scheduling
	dest       netip.AddrPort
	weight     int
	addr       netip.Addr
	rules      ruleset.Plan
	family     sdk.Family
	fill       map[entry]note // what a set has when it takes another's place
	relics     []string       // sets of kube-proxy's
}

// A plan is steps in the order in which they are taken.
type plan []step

// String is the step for people, in the words of the tools that they would use.
func (s step) String() string {
	switch s.verb {
	case makeSet, replaceSet:
		return fmt.Sprintf("%s set %s", map[verb]string{makeSet: "make", replaceSet: "replace"}[s.verb], s.set.in(s.family))
	case addEntry:
		return strings.Replace(s.entry.command(s.note), "add -exist", "add to", 1)
	case removeEntry:
		return fmt.Sprintf("remove from %s %s", s.entry.set.in(s.entry.family), s.entry)
	case addService, setService:
		return fmt.Sprintf("%s server %s %s", map[verb]string{addService: "add", setService: "set"}[s.verb], s.service, s.scheduling)
	case removeService:
		return fmt.Sprintf("remove server %s", s.service)
	case addDest:
		return fmt.Sprintf("add real %s on %s weight %d", s.dest, s.service, s.weight)
	case weighDest:
		return fmt.Sprintf("weigh real %s on %s %d", s.dest, s.service, s.weight)
	case removeDest:
		return fmt.Sprintf("remove real %s on %s", s.dest, s.service)
	case bind, unbind:
		return fmt.Sprintf("%s %s", map[verb]string{bind: "bind", unbind: "unbind"}[s.verb], s.addr)
	case makeDevice:
		return "make device " + device
	case removeRelicSets:
		return "remove sets " + strings.Join(s.relics, " ")
	}
	return strings.Join(s.rules.Steps(), "; ")
}

// steps is the plan for people, a step a line.
func (p plan) steps() []string {
	lines := make([]string, len(p))
	for i, s := range p {
		lines[i] = s.String()
	}
	return lines
}

func (p plan) String() string { return strings.Join(p.steps(), "\n") }
