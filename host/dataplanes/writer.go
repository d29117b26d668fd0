// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// This file is about the writer's lock (contract line 8): what a process without it was
// told it has received, and does not serve.

// A writing is how a process stands to the writer's lock, as it last reported.
type writing struct {
	lock   sdk.Lock
	holder sdk.Holder
	steps  int       // that the last update came to, and that were only planned
	since  time.Time // since when it lacks the lock; zero: it does not
	told   string    // why, as last reported by an event; empty: that it is the writer
	asked  uint64    // the revision for which everything was asked for again
}

// lockGrace is how long a lock may be missing before that is an event: a process that ends
// leaves its lock to the tools that it started, until they are done.
const lockGrace = time.Second

// lockLimit is how long a dataplane that is to take the place of one of another mode may
// lack the lock of its own mode.
const lockLimit = 10 * time.Second

// beat takes in what a process reports.
func (p *dataplane) beat(remote *wire.Remote, v wire.Vitals) {
	p.mu.Lock()
	f, c, role := p.feed, p.cursor, p.role
	if remote != p.remote || f == nil {
		p.mu.Unlock()
		return // it is of a session that is over
	}
	p.writing.lock, p.writing.holder = v.Lock, v.Holder
	p.mu.Unlock()
	p.takeServed(f, c, v, role)
	p.tellWriter(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	if remote == p.remote {
		p.observe()
	}
}

// ask asks the process at once, where waiting for the next beat would take too long.
func (p *dataplane) ask(ctx context.Context, remote *wire.Remote) {
	if v, err := remote.Vitals(ctx); err == nil { // else its beats show it
		p.beat(remote, v)
	}
}

// takeServed takes in which revision is served, and which Services failed when what was
// planned was written. More of these than a report can name are named by a Full.
func (p *dataplane) takeServed(f *feed.Feed, c *track.Cursor, v wire.Vitals, role sdk.Role) {
	served := v.Served
	switch {
	case v.Lock == sdk.LockAwaited, v.Lock == sdk.LockReleased, role == sdk.Yielded:
		return
	case v.Lock == sdk.LockUnused && served == 0:
		served = v.Revision // it has no lock: what it acknowledged it serves, once it has not yielded
	}
	before := c.Status()
	if served != before.Acked || before.Served == served && len(v.Unserved) == 0 && v.UnservedMore == 0 {
		return
	}
	p.mu.Lock()
	again := v.UnservedMore > 0 && p.writing.asked != served && p.cursor == c
	if again {
		p.writing.asked, p.filled = served, false
	}
	p.mu.Unlock()
	if again {
		c.Resync()
		return
	}
	triggers := f.Served(served, v.Unserved)
	if before.Served == served || c.Status().Served != served {
		return
	}
	p.mu.Lock()
	p.last, p.succeeds = time.Now(), false
	p.mu.Unlock()
	p.log.Info("what was planned is served now", "plugin", p.name, "rev", served, "failed", len(v.Unserved))
	p.applied(feed.Acked{Update: sdk.Update{To: served}, Late: true, Triggers: triggers})
}

// tellWriter reports when the process that is to serve is not the writer, and when it is
// again.
func (p *dataplane) tellWriter(c *track.Cursor) {
	p.mu.Lock()
	why := p.noWriter(c)
	now := time.Now()
	switch {
	case why == "":
		p.writing.since = time.Time{}
	case p.writing.since.IsZero():
		p.writing.since = now
	}
	settled := why == "" || now.Sub(p.writing.since) >= lockGrace
	news := settled && why != p.writing.told && (p.role == sdk.Active || why == "")
	if news {
		p.writing.told = why
	}
	announce := p.unannounced && why == "" && p.role == sdk.Active
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

// noWriter says why it may not write; empty: it may, or is not to. The caller has the
// mutex.
func (p *dataplane) noWriter(c *track.Cursor) string {
	if c == nil || p.role == sdk.Yielded || p.role == sdk.Draining {
		return ""
	}
	switch p.writing.lock {
	case sdk.LockAwaited:
		return fmt.Sprintf("%s holds the writer's lock", p.writing.holder)
	case sdk.LockReleased:
		return "it let go of the writer's lock, as after a cleanup by another process"
	}
	if s := c.Status(); s.Served != s.Acked {
		return "it is still to write what it planned"
	}
	return ""
}

// wrote reports whether it serves everything that it received. The caller has the mutex.
func (p *dataplane) wrote() bool {
	if !p.filled || p.cursor == nil {
		return false
	}
	s := p.cursor.Status()
	return s.Served == s.Acked
}

// mayPlan reports whether it need not serve what it receives: it is to leave, or takes the
// place of another process of its mode, which is the writer until then. The caller has the
// mutex.
func (p *dataplane) mayPlan() bool {
	return p.succeeds || p.role == sdk.Yielded || p.want == sdk.Yielded || p.want == sdk.Draining
}

// written waits until its process serves everything that it was told.
func (p *dataplane) written(ctx context.Context) error {
	for {
		p.mu.Lock()
		done, remote := p.wrote(), p.remote
		failure, why := p.failure, p.noWriter(p.cursor)
		p.mu.Unlock()
		if done {
			return nil
		}
		if remote != nil {
			p.ask(ctx, remote)
		}
		select {
		case <-ctx.Done():
			if why != "" {
				failure = why
			}
			return fmt.Errorf("wait until %s serves what it was told: %w", p.name, errors.Join(ctx.Err(), p.trouble(failure)))
		case <-time.After(2 * glance):
		}
	}
}

// locked is an error once a dataplane that stands by, or keeps the role it found, has lacked its mode's lock for too
// long: it can never serve what it was told. The caller has the mutex.
func (p *dataplane) locked() error {
	if p.want != sdk.Standby && p.want != 0 || p.succeeds || p.writing.since.IsZero() || time.Since(p.writing.since) < lockLimit {
		return nil
	}
	return fmt.Errorf("%s may not write: %s", p.name, p.noWriter(p.cursor))
}
