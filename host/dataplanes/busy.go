// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// This file is about calls that are answered with a *sdk.Busy: another process holds the writer's
// lock (contract line 8). They have changed nothing and are tried again: an update by the feed, the rest here.

// A writer is what the last call that needs the writer's lock was answered. The zero value says that there
// was none in this session.
type writer struct {
	busy     *sdk.Busy // nil: it was not busy
	since    time.Time // since when it has been
	wrote    bool      // its last update or role in this session went in
	reported bool      // that it is busy, by the last event
}

const (
	// lockGrace is how long a lock may be missing before that is an event: a process that
	// ends leaves its lock to the tools that it started, until they are done.
	lockGrace = time.Second

	// lockLimit is how long a dataplane that is to take the place of one of another mode
	// may lack the lock of its own mode.
	lockLimit = 10 * time.Second

	// A call is tried again often at first: mostly the holder of the lock is about to end.
	busyOften  = 100 * time.Millisecond
	busyFor    = 3 * time.Second
	busySeldom = time.Second
)

// unlessBusy makes a call again for as long as it is answered with a *sdk.Busy, and returns its error: at the
// latest once ctx ends.
func unlessBusy(ctx context.Context, call func() error) error {
	for began := time.Now(); ; {
		err := call()
		if !errors.As(err, new(*sdk.Busy)) {
			return err
		}
		wait := busyOften
		if time.Since(began) >= busyFor {
			wait = busySeldom
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// noteBusy notes what a call of a session was answered, and reports when the process may not write for a while,
// and when it may again. It returns err.
func (p *dataplane) noteBusy(s *session, err error) error {
	var busy *sdk.Busy
	errors.As(err, &busy)
	p.mu.Lock()
	w, now := &p.writer, time.Now()
	switch {
	case p.session != s, err != nil && busy == nil, s.role == sdk.Yielded:
		p.mu.Unlock()
		return err
	case busy == nil:
		w.since = time.Time{}
	case w.since.IsZero():
		w.since = now
	}
	w.busy, w.wrote = busy, busy == nil
	isNews := w.reported != (busy != nil) && (busy == nil || now.Sub(w.since) >= lockGrace && !p.succeeds)
	w.reported = w.reported != isNews
	p.observe()
	p.mu.Unlock()
	switch {
	case isNews && busy != nil:
		p.reports.Report(report.Event{Warning: true, Reason: report.WriterElsewhere, Object: p.name, Message: "it may not write, so what it was told is not served: " + busy.Error()})
	case isNews:
		p.reports.Report(report.Event{Reason: report.WriterHere, Object: p.name, Message: "it is the writer now, and what it was told is served"})
	}
	p.notify()
	return err
}

// beat notes what the process of a session reports, or why it is in doubt.
func (p *dataplane) beat(s *session, v wire.Vitals, doubt string) {
	p.mu.Lock()
	state := p.status.state
	p.status.looked = time.Now()
	if doubt == "" {
		p.status.vitals = v
	}
	p.mu.Unlock()
	switch {
	case doubt != "":
		if state == Serving {
			p.enter(Suspect, doubt)
		}
		return
	case state == Suspect:
		p.enter(Serving, "")
	}
	if s.feed != nil {
		p.drops.add(p.name, v.Dropped)
		p.takeRepairs(v)
		p.takeNotes(v)
	}
	p.notify()
}

// takeNotes reports each kernel parameter that the process says it cannot set, and did not say before.
func (p *dataplane) takeNotes(v wire.Vitals) {
	p.mu.Lock()
	before := p.notes
	p.notes = v.Notes
	p.mu.Unlock()
	for _, note := range v.Notes {
		if about, is := strings.CutPrefix(note, sdk.NotSet); is && !slices.Contains(before, note) {
			p.reports.Report(report.Event{Warning: true, Reason: report.ParameterNotSet, Object: p.name, Message: about})
		}
	}
}

// noWriter says why the process of a session may not write; empty: it may, or is not to. The
// caller has the mutex.
func (p *dataplane) noWriter(s *session) string {
	if s == nil || p.writer.busy == nil || s.role == sdk.Yielded || s.role == sdk.Draining {
		return ""
	}
	return p.writer.busy.Error()
}

// lockMissing returns an error once a dataplane that stands by, or keeps the role it found, has
// lacked its mode's lock for too long: it can never serve what it was sent. The caller has
// the mutex.
func (p *dataplane) lockMissing() error {
	if s := p.session; s == nil || s.role != sdk.Standby && s.role != 0 || p.succeeds || p.writer.since.IsZero() || time.Since(p.writer.since) < lockLimit {
		return nil
	}
	return fmt.Errorf("%s may not write: %s", p.name, p.noWriter(p.session))
}
