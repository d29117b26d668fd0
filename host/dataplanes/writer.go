// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// This file is about the writer's lock (contract line 8): what a process without it was
// sent it has received, and does not serve.

// A writer is how a process stands to the writer's lock, as it last reported.
type writer struct {
	lock     sdk.Lock
	holder   sdk.Holder
	steps    int       // that the last update came to, and that were only planned
	since    time.Time // since when it lacks the lock; zero: it does not
	reported string    // why, by the last event; empty: that it is the writer
	asked    uint64    // the revision for which everything was asked for again
}

const (
	// lockGrace is how long a lock may be missing before that is an event: a process that
	// ends leaves its lock to the tools that it started, until they are done.
	lockGrace = time.Second

	// lockLimit is how long a dataplane that is to take the place of one of another mode
	// may lack the lock of its own mode.
	lockLimit = 10 * time.Second

	// askEach is how often a process that is to write is asked whether it has: it tries
	// the lock by itself, and its next beat may be a second away.
	askEach = 40 * time.Millisecond
)

// beat notes what a process reports.
func (p *dataplane) beat(remote *wire.Remote, v wire.Vitals) {
	p.mu.Lock()
	s := p.session
	if !s.fed() || s.remote != remote {
		p.mu.Unlock()
		return // it is of a session that is over
	}
	p.writer.lock, p.writer.holder = v.Lock, v.Holder
	role := s.role
	p.mu.Unlock()
	p.takeServed(s, v, role)
	p.takeRepairs(v)
	p.reportWriter(s)
	p.mu.Lock()
	if p.session == s {
		p.observe()
	}
	p.mu.Unlock()
	p.notify()
}

// ask asks the process at once, where waiting for the next beat would take too long.
func (p *dataplane) ask(ctx context.Context, remote *wire.Remote) {
	if v, err := remote.Vitals(ctx); err == nil { // else its beats show it
		p.beat(remote, v)
	}
}

// takeServed notes which revision is served, and which Services failed when what was
// planned was written. More of these than a report can name are named by a Full.
func (p *dataplane) takeServed(s *session, v wire.Vitals, role sdk.Role) {
	served := v.Served
	switch {
	case v.Lock == sdk.LockAwaited, v.Lock == sdk.LockReleased, role == sdk.Yielded:
		return
	case v.Lock == sdk.LockUnused && served == 0:
		served = v.Revision // it has no lock: what it acknowledged it serves, once it has not yielded
	}
	before := s.cursor.Status()
	if served != before.Acked || before.Served == served && len(v.Unserved) == 0 && v.UnservedMore == 0 {
		return
	}
	p.mu.Lock()
	again := v.UnservedMore > 0 && p.writer.asked != served && p.session == s
	if again {
		p.writer.asked = served
		s.refill()
	}
	p.mu.Unlock()
	if again {
		return
	}
	triggers := s.feed.Served(served, v.Unserved)
	if before.Served == served || s.cursor.Status().Served != served {
		return
	}
	p.mu.Lock()
	p.followed.last, p.succeeds = time.Now(), false
	p.mu.Unlock()
	p.log.Info("what was planned is served now", "plugin", p.name, "rev", served, "failed", len(v.Unserved))
	p.hooks.applied(p, feed.Acked{Update: sdk.Update{To: served}, Late: true, Triggers: triggers})
}

// reportWriter reports when the process that is to serve is not the writer, and when it is
// again.
func (p *dataplane) reportWriter(s *session) {
	p.mu.Lock()
	why, active := p.noWriter(s), s.role == sdk.Active
	next, news := p.writer.lacks(why, active, time.Now())
	p.writer = next
	announce := p.unannounced && why == "" && active
	p.unannounced = p.unannounced && !announce
	p.mu.Unlock()
	switch {
	case news && why != "":
		p.reports.Report(report.Event{Warning: true, Reason: report.WriterElsewhere, Object: p.name, Message: "it may not write, so what it was told is not served: " + why})
	case news:
		p.reports.Report(report.Event{Reason: report.WriterHere, Object: p.name, Message: "it is the writer now, and what it was told is served"})
	}
	if announce {
		p.reports.Report(report.Event{Reason: report.DataplaneActive, Object: p.name, Message: "it serves this node"})
	}
}

// lacks returns the writer once it is known why the process may not write; empty: it may. news
// says that this is to be reported.
func (w writer) lacks(why string, active bool, now time.Time) (next writer, news bool) {
	switch {
	case why == "":
		w.since = time.Time{}
	case w.since.IsZero():
		w.since = now
	}
	settled := why == "" || now.Sub(w.since) >= lockGrace
	if news = settled && why != w.reported && (active || why == ""); news {
		w.reported = why
	}
	return w, news
}

// noWriter says why the process of a session may not write; empty: it may, or is not to. The
// caller has the mutex.
func (p *dataplane) noWriter(s *session) string {
	if s == nil || s.cursor == nil || s.role == sdk.Yielded || s.role == sdk.Draining {
		return ""
	}
	switch p.writer.lock {
	case sdk.LockAwaited:
		return fmt.Sprintf("%s holds the writer's lock", p.writer.holder)
	case sdk.LockReleased:
		return "it let go of the writer's lock, as after a cleanup by another process"
	}
	if c := s.cursor.Status(); c.Served != c.Acked {
		return "it is still to write what it planned"
	}
	return ""
}

// mayPlan reports whether it need not serve what it receives: it is to leave, or takes the
// place of another process of its mode, which is the writer until then. The caller has the
// mutex.
func (p *dataplane) mayPlan() bool {
	return p.succeeds || p.session.is(sdk.Yielded) || p.want == sdk.Yielded || p.want == sdk.Draining
}

// lockMissing returns an error once a dataplane that stands by, or keeps the role it found, has
// lacked its mode's lock for too long: it can never serve what it was sent. The caller has
// the mutex.
func (p *dataplane) lockMissing() error {
	if p.want != sdk.Standby && p.want != 0 || p.succeeds || p.writer.since.IsZero() || time.Since(p.writer.since) < lockLimit {
		return nil
	}
	return fmt.Errorf("%s may not write: %s", p.name, p.noWriter(p.session))
}

// written waits until its process serves everything that it was sent.
func (p *dataplane) written(ctx context.Context) error {
	for {
		p.mu.Lock()
		s := p.session
		done, failure, why := s.wrote(), p.followed.failure, p.noWriter(s)
		p.mu.Unlock()
		if done {
			return nil
		}
		if s != nil {
			p.ask(ctx, s.remote)
		}
		select {
		case <-ctx.Done():
			if why != "" {
				failure = why
			}
			return fmt.Errorf("wait until %s serves what it was told: %w", p.name, errors.Join(ctx.Err(), p.trouble(failure)))
		case <-time.After(askEach):
		}
	}
}
