// SPDX-License-Identifier: Apache-2.0

/*
Package quarantine finds the Services that a plugin crashes on, and keeps them from it.

	Sync ─▶ Watch notes what the process is updated with
	          │ it crashes twice, and both updates have Services in common
	          ▼
	        Crashed: those are quarantined, so that the process lives and serves the rest
	          │
	          ▼
	        Run: bisects them on an instance that serves nothing, and keeps only the
	        culprits; each of these is released when it changes

What a quarantined Service was served by stays as it is.
*/
package quarantine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/sdk"
)

// crashesToSuspect is how often in a row a plugin must crash on a Service to have it
// suspected.
const crashesToSuspect = 2

// A Syncer is the part of a dataplane that may crash on a Service.
type Syncer interface {
	Sync(context.Context, sdk.Update) (sdk.Result, error)
}

// Settings are what a Quarantine works with.
type Settings struct {
	Plugin string
	Report func(report.Event)
	Value  func(sdk.Name) (sdk.Service, bool) // what is to be served under a name

	// Ready waits until the plugin's own process serves everything that is not in
	// quarantine: it goes first, and has the writer's lock.
	Ready func(context.Context) error

	// Try updates an instance that serves nothing with a group of Services, and reports
	// whether it crashed.
	Try func(ctx context.Context, group []sdk.Name) (crashed bool, err error)

	// Changed is called when other Services are quarantined than before.
	Changed func()
}

// A Quarantine is the Services that are kept from one plugin. It is safe for concurrent
// use.
type Quarantine struct {
	Settings
	suspected chan []sdk.Name // for Run to bisect; it has room for one

	mu        sync.Mutex // guards what follows
	syncing   []sdk.Name // what the process is being updated with; nil: nothing
	common    []sdk.Name // what the updates of the last crashes have in common
	crashes   int        // in a row, each during an update, with Services in common
	bisecting bool
	held      map[sdk.Name]sdk.Service // by the value that the process crashed on
}

// New returns a Quarantine of no Service. It bisects with Run.
func New(s Settings) *Quarantine {
	return &Quarantine{Settings: s, suspected: make(chan []sdk.Name, 1)}
}

// Watch returns s, with what it is updated with noted.
func (q *Quarantine) Watch(s Syncer) Syncer { return watched{s, q} }

type watched struct {
	Syncer
	quarantine *Quarantine
}

func (w watched) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	names := make([]sdk.Name, 0, len(u.Set))
	for i := range u.Set {
		names = append(names, u.Set[i].Name)
	}
	w.quarantine.updating(names)
	result, err := w.Syncer.Sync(ctx, u)
	if err == nil {
		w.quarantine.updated()
	}
	return result, err
}

func (q *Quarantine) updating(names []sdk.Name) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.syncing = names
}

func (q *Quarantine) updated() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.syncing = nil
	if !q.bisecting {
		q.common, q.crashes = nil, 0
	}
}

// Names returns the Services in quarantine.
func (q *Quarantine) Names() []sdk.Name {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []sdk.Name
	for n := range q.held {
		all = append(all, n)
	}
	return all
}

// Crashed notes that the process has crashed.
func (q *Quarantine) Crashed() {
	suspects := q.suspects()
	if suspects == nil {
		return
	}
	q.hold(append(suspects, q.Names()...)) // the next process gets them as its session begins
	q.Report(report.Event{Warning: true, Reason: report.PluginCrashedTwice, Object: q.Plugin,
		Message: fmt.Sprintf("it crashed twice on the same update; %s quarantined while bisecting", phrase.Count(len(suspects), "Service"))})
	q.suspected <- suspects // there is room: bisecting is set until Run has taken them, and is done
}

// suspects returns the Services that the process seems to crash on; nil: there is no reason to
// suspect any.
func (q *Quarantine) suspects() []sdk.Name {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.syncing) == 0 || q.bisecting {
		return nil
	}
	q.crashes++
	if q.common = inBoth(q.common, q.syncing); len(q.common) == 0 {
		q.common, q.crashes = q.syncing, 1 // the first crash, or on something else than before
	}
	q.syncing = nil
	if q.crashes < crashesToSuspect {
		return nil
	}
	q.bisecting = true
	return q.common
}

// inBoth returns the names in both lists.
func inBoth(a, b []sdk.Name) []sdk.Name {
	in := make(map[sdk.Name]bool, len(a))
	for _, n := range a {
		in[n] = true
	}
	return slices.DeleteFunc(slices.Clone(b), func(n sdk.Name) bool { return !in[n] })
}

// hold quarantines these, and no others.
func (q *Quarantine) hold(names []sdk.Name) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = make(map[sdk.Name]sdk.Service, len(names))
	for _, n := range names {
		if v, ok := q.Value(n); ok {
			q.held[n] = v
		}
	}
}

// release ends the quarantine of Services that have changed or are gone, and returns them.
// While a bisection goes on none is released.
func (q *Quarantine) release() (released []sdk.Name) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bisecting {
		return nil
	}
	for n, before := range q.held {
		if now, ok := q.Value(n); !ok || !now.Equal(before) {
			delete(q.held, n)
			released = append(released, n)
		}
	}
	return released
}

const (
	recheckEach = time.Second     // whether quarantined Services have changed
	tryLimit    = time.Minute     // for one group of a bisection
	tryAgain    = 5 * time.Second // after an instance could not be tried
)

// Run bisects what is suspected, and releases what has changed, until ctx ends.
func (q *Quarantine) Run(ctx context.Context) {
	ticker := time.NewTicker(recheckEach)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case suspects := <-q.suspected:
			if culprits, ok := q.bisect(ctx, suspects); ok {
				q.settle(culprits)
			}
		case <-ticker.C:
			q.recheck()
		}
	}
}

// bisect finds out which of the suspects the plugin crashes on. It is false if ctx ended
// before.
func (q *Quarantine) bisect(ctx context.Context, suspects []sdk.Name) (culprits []sdk.Name, ok bool) {
	b := bisect(suspects)
	for group := b.next(); group != nil; group = b.next() {
		crashed, err := q.try(ctx, group)
		if err == nil {
			b = b.tried(crashed)
			continue
		}
		if ctx.Err() == nil {
			q.Report(report.Event{Warning: true, Reason: report.PluginNote, Object: q.Plugin, Message: "find out which Service it crashes on: " + err.Error()})
		}
		select {
		case <-ctx.Done():
			return nil, false
		case <-time.After(tryAgain):
		}
	}
	return b.culprits, true
}

// try waits until the plugin's own process is ready, and tries a group beside it.
func (q *Quarantine) try(ctx context.Context, group []sdk.Name) (crashed bool, err error) {
	if err := q.Ready(ctx); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	return q.Try(ctx, group)
}

// settle quarantines the culprits, and no others.
func (q *Quarantine) settle(culprits []sdk.Name) {
	q.hold(culprits)
	q.mu.Lock()
	q.bisecting, q.common, q.crashes = false, nil, 0
	q.mu.Unlock()
	q.Changed()
	if len(culprits) == 0 {
		q.Report(report.Event{Reason: report.PluginNote, Object: q.Plugin, Message: "no Service was found that it crashes on"})
	}
	for _, n := range culprits {
		q.Report(report.Event{Warning: true, Reason: report.ServiceQuarantined, Object: n.String(),
			Message: fmt.Sprintf("the %s dataplane crashes on it; it is left as it was served, until it changes", q.Plugin)})
	}
}

// recheck releases what has changed.
func (q *Quarantine) recheck() {
	released := q.release()
	if len(released) == 0 {
		return
	}
	q.Changed()
	for _, n := range released {
		q.Report(report.Event{Reason: report.ServiceReleased, Object: n.String(), Message: "it changed, and is tried again"})
	}
}

// A bisection looks for the Services that a plugin crashes on, among those that it was
// updated with when it crashed. It is a value: next says which to try on an instance that
// serves nothing, tried notes the outcome. With k culprits among n it takes about
// k·log n trials.
type bisection struct {
	groups   [][]sdk.Name // still to be tried; the first is next
	culprits []sdk.Name
}

// bisect begins a bisection of names.
func bisect(names []sdk.Name) bisection { return bisection{groups: halves(names)} }

// next returns the Services to try together; nil: the bisection is over.
func (b bisection) next() []sdk.Name {
	if len(b.groups) == 0 {
		return nil
	}
	return b.groups[0]
}

// tried returns the bisection after those of next were tried.
func (b bisection) tried(crashed bool) bisection {
	group, rest := b.groups[0], b.groups[1:]
	switch {
	case !crashed:
		b.groups = rest
	case len(group) == 1:
		b.groups, b.culprits = rest, append(b.culprits[:len(b.culprits):len(b.culprits)], group[0])
	default:
		b.groups = append(halves(group), rest...)
	}
	return b
}

func halves(names []sdk.Name) [][]sdk.Name {
	switch n := len(names); n {
	case 0:
		return nil
	case 1:
		return [][]sdk.Name{names}
	default:
		return [][]sdk.Name{names[:n/2], names[n/2:]}
	}
}
