// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// This file finds the Service that a plugin dies of, again and again. All that it
// was told of at its deaths is set aside, so that it lives and the rest is served;
// then an instance beside it, which serves nobody, is told of them by halves.

// twice is how often a plugin must have died of an update to suspect its Services.
const twice = 2

// A ward is the Services that are set aside from one dataplane.
type ward struct {
	mu      sync.Mutex // guards what follows
	telling []sdk.Name // what the process is being told just now; nil: nothing
	fatal   []sdk.Name // what it was being told at each of its last deaths, as many as deaths says
	deaths  int        // in a row, each while it was being told, and of something in common
	hunting bool
	aside   map[sdk.Name]sdk.Service // with the value that its process crashed on
}

// A teller notes what it tells the process.
type teller struct {
	*wire.Remote
	ward *ward
}

// Sync is the process's own, which may die of it.
func (t teller) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	names := make([]sdk.Name, 0, len(u.Set))
	for i := range u.Set {
		names = append(names, u.Set[i].Name)
	}
	t.ward.note(names)
	result, err := t.Remote.Sync(ctx, u)
	if err == nil {
		t.ward.survived()
	}
	return result, err
}

func (w *ward) note(names []sdk.Name) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.telling = names
}

func (w *ward) survived() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.telling = nil
	if !w.hunting {
		w.fatal, w.deaths = nil, 0
	}
}

// died takes in that the process is gone, and returns whom to suspect, once there
// is reason to.
func (w *ward) died() []sdk.Name {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.telling) == 0 || w.hunting {
		return nil
	}
	w.deaths++
	if w.fatal = common(w.fatal, w.telling); len(w.fatal) == 0 {
		w.fatal, w.deaths = w.telling, 1 // the first one, or of something else than before
	}
	w.telling = nil
	if w.deaths < twice {
		return nil
	}
	w.hunting = true
	return w.fatal
}

// common are the names in both lists.
func common(a, b []sdk.Name) []sdk.Name {
	in := make(map[sdk.Name]bool, len(a))
	for _, n := range a {
		in[n] = true
	}
	return slices.DeleteFunc(slices.Clone(b), func(n sdk.Name) bool { return !in[n] })
}

// names are those that are aside.
func (w *ward) names() []sdk.Name {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []sdk.Name
	for n := range w.aside {
		all = append(all, n)
	}
	return all
}

// put sets these aside, and no others.
func (w *ward) put(names []sdk.Name, value func(sdk.Name) (sdk.Service, bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.aside = make(map[sdk.Name]sdk.Service, len(names))
	for _, n := range names {
		if v, ok := value(n); ok {
			w.aside[n] = v
		}
	}
}

// release lets those go that are other than they were, or gone, and says which.
func (w *ward) release(value func(sdk.Name) (sdk.Service, bool)) (free []sdk.Name) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hunting {
		return nil
	}
	for n, before := range w.aside {
		if now, ok := value(n); !ok || !now.Equal(before) {
			delete(w.aside, n)
			free = append(free, n)
		}
	}
	return free
}

// bury is what follows from a death of the process.
func (p *dataplane) bury(ctx context.Context) {
	suspects := p.ward.died()
	if suspects == nil {
		return
	}
	p.ward.put(append(suspects, p.ward.names()...), p.tracker.Value)
	p.reports.Report(report.Event{Warning: true, Reason: report.PluginPoisoned, Object: p.name,
		Message: fmt.Sprintf("it died %d times of the same update; %s set aside, to find out which it dies of", twice, phrase.Count(len(suspects), "Service"))})
	p.hunts.Go(func() { p.hunt(ctx, suspects) }) // ends with ctx
}

// hunt finds out of which Services the process dies, and sets those aside alone.
func (p *dataplane) hunt(ctx context.Context, suspects []sdk.Name) {
	h := supervise.NewHunt(suspects)
	for group := h.Next(); group != nil; group = h.Next() {
		if p.Filled(ctx) != nil { // who serves goes first, and has the writer's lock
			return
		}
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		died, err := p.plugin.Try(limited, func(ctx context.Context, r *wire.Remote, d sdk.Description) error {
			return p.taste(ctx, r, d, group)
		})
		cancel()
		if err != nil {
			p.reports.Report(report.Event{Warning: true, Reason: report.PluginNote, Object: p.name, Message: "find out what it dies of: " + err.Error()})
			select {
			case <-ctx.Done():
				return
			case <-time.After(5 * time.Second):
				continue
			}
		}
		h = h.Told(died)
	}
	p.verdict(h.Guilty)
}

// taste tells an instance of a group, and lets it leave all else as it is.
func (p *dataplane) taste(ctx context.Context, r *wire.Remote, d sdk.Description, group []sdk.Name) error {
	if err := r.SetRole(ctx, onTrial(d)); err != nil { // it must not try for the writer's lock
		return err
	}
	c := p.tracker.Cursor(d)
	defer c.Close()
	c.Keep(p.tracker.NamesBut(group)...)
	u, ok := c.Next()
	if !ok {
		return nil
	}
	_, err := r.Sync(ctx, u)
	return err
}

// verdict sets the guilty aside, and nobody else.
func (p *dataplane) verdict(guilty []sdk.Name) {
	p.ward.put(guilty, p.tracker.Value)
	p.ward.mu.Lock()
	p.ward.hunting, p.ward.fatal, p.ward.deaths = false, nil, 0
	p.ward.mu.Unlock()
	p.keepAside()
	if len(guilty) == 0 {
		p.reports.Report(report.Event{Reason: report.PluginNote, Object: p.name, Message: "no Service was found that it dies of"})
	}
	for _, n := range guilty {
		p.reports.Report(report.Event{Warning: true, Reason: report.ServicePoison, Object: n.String(),
			Message: fmt.Sprintf("the %s dataplane dies of it; it is left as it was served, until it changes", p.name)})
	}
}

// keepAside tells the session's cursor who is aside.
func (p *dataplane) keepAside() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cursor != nil {
		p.cursor.Keep(p.ward.names()...)
	}
}

// visit looks each second whether those who are aside have changed: then they are
// tried again.
func (p *dataplane) visit(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if free := p.ward.release(p.tracker.Value); len(free) > 0 {
			p.keepAside()
			for _, n := range free {
				p.reports.Report(report.Event{Reason: report.ServiceFreed, Object: n.String(), Message: "it changed, and is tried again"})
			}
		}
	}
}
