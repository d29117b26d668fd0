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

// This file handles calls that return *sdk.Busy: another process holds the writer's lock
// (contract line 8). Such a call has changed nothing and is retried: updates by the feed, other
// calls here.

// A writer is the result of the last call that needed the writer's lock. The zero value means
// that there was none in this session.
type writer struct {
	busy     *sdk.Busy // nil if the lock was free
	since    time.Time // since when it has been busy
	wrote    bool      // its last update or role change in this session succeeded
	reported bool      // the last event reported that it is busy
}

const (
	// lockGrace is how long a lock may be missing without an event. A process that ends leaves
	// its lock to the tools that it started, until they end.
	lockGrace = time.Second

	// lockLimit is how long a dataplane that should replace a dataplane of another mode may
	// lack the lock of its own mode.
	lockLimit = 10 * time.Second

	// Retry intervals: short at first, because usually the holder of the lock is about to end.
	busyInterval     = 100 * time.Millisecond
	busyFor          = 3 * time.Second
	busyLongInterval = time.Second
)

// retryWhileBusy retries call as long as it returns *sdk.Busy, at most until ctx ends, and
// returns its last error.
func retryWhileBusy(ctx context.Context, call func() error) error {
	for began := time.Now(); ; {
		err := call()
		if !errors.As(err, new(*sdk.Busy)) {
			return err
		}
		wait := busyInterval
		if time.Since(began) >= busyFor {
			wait = busyLongInterval
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// noteBusy records the result of a call in a session, and reports when the process has lacked
// the writer's lock for a while and when it has it again. It returns err.
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
	p.mu.Unlock()
	switch {
	case isNews && busy != nil:
		p.host.Reports.Report(report.Event{Warning: true, Reason: report.WriterElsewhere, Object: p.name, Message: "its updates are not applied: " + busy.Error()})
	case isNews:
		p.host.Reports.Report(report.Event{Reason: report.WriterHere, Object: p.name, Message: "it holds the writer's lock, and its updates are applied"})
	}
	p.notify()
	return err
}

// recordHeartbeat records the vitals of a session's process, or why the process is in doubt.
func (p *dataplane) recordHeartbeat(s *session, v wire.Vitals, doubt string) {
	p.mu.Lock()
	state := p.status.state
	p.status.looked = time.Now()
	if doubt == "" {
		p.status.vitals = v
		if len(v.Dropped) > 0 {
			p.drops = v.Dropped
		}
	}
	p.mu.Unlock()
	switch {
	case doubt != "":
		if state == Serving {
			p.setState(Suspect, doubt)
		}
		return
	case state == Suspect:
		p.setState(Serving, "")
	}
	if s.feed != nil {
		p.reportRepairs(v)
		p.reportNotes(v)
	}
	p.notify()
}

// reportNotes reports each kernel parameter that the process newly says it cannot set.
func (p *dataplane) reportNotes(v wire.Vitals) {
	p.mu.Lock()
	before := p.notes
	p.notes = v.Notes
	p.mu.Unlock()
	for _, note := range v.Notes {
		if about, is := strings.CutPrefix(note, sdk.NotSet); is && !slices.Contains(before, note) {
			p.host.Reports.Report(report.Event{Warning: true, Reason: report.ParameterNotSet, Object: p.name, Message: about})
		}
	}
}

// whyNoWriter returns the reason why a session's process may not write, or "" if it may or need
// not. The caller holds the mutex.
func (p *dataplane) whyNoWriter(s *session) string {
	if s == nil || p.writer.busy == nil || s.role == sdk.Yielded || s.role == sdk.Draining {
		return ""
	}
	return p.writer.busy.Error()
}

// lockMissing returns an error if a dataplane in Standby, or with the role it found, has lacked
// the lock of its mode for too long: it can never serve its updates. The caller holds the
// mutex.
func (p *dataplane) lockMissing() error {
	if s := p.session; s == nil || s.role != sdk.Standby && s.role != 0 || p.succeeds || p.writer.since.IsZero() || time.Since(p.writer.since) < lockLimit {
		return nil
	}
	return fmt.Errorf("%s cannot write: %s", p.name, p.whyNoWriter(p.session))
}
