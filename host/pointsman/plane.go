// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"k8s.io/utils/clock"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// firstRetry is how soon an update that failed is tried again; the feed doubles it
// with each failure in a row.
const firstRetry = time.Second

// syncDeadline is for one update. The longest is a first Full of a large cluster
// into a kernel that is slow to take it.
const syncDeadline = 5 * time.Minute

// A plane is one dataplane as the host runs it: a process that supervise keeps
// alive, and for each life of it a session.
type plane struct {
	name       string
	tracker    *track.Tracker
	reports    *report.Reporter
	log        hclog.Logger
	book       *logBook
	supervisor *supervise.Supervisor

	mu      sync.Mutex // guards what follows
	minGap  time.Duration
	period  time.Duration
	feed    *feed.Feed    // nil: no session
	cursor  *track.Cursor // of the session
	role    sdk.Role
	last    time.Time // when an update was confirmed; zero: none was, in any session
	took    time.Duration
	failure string // of the last Sync, where it failed
}

// supervised gives the plane its process. It begins with supervisor.Run.
func (p *plane) supervised(plugin supervise.Plugin) {
	p.supervisor = supervise.New(plugin, supervise.Hooks{
		Session:    p.session,
		Transition: p.transition,
		Log:        p.line,
	})
}

// session feeds one process until it is gone.
func (p *plane) session(outer context.Context, remote *wire.Remote, d sdk.Description) error {
	ctx, cancel := context.WithCancelCause(outer)
	defer cancel(nil)
	for _, w := range remote.Warnings() {
		p.reports.Report(report.Event{Reason: pluginNote, Object: p.name, Message: w})
	}
	cursor := p.tracker.Cursor(d)
	defer cursor.Close()

	s := &session{plane: p, remote: remote, ctx: ctx, cancel: cancel}
	minGap, period := p.periods()
	f, err := feed.New(clock.RealClock{}, cursor, remote, feed.Settings{
		MinGap: minGap, Period: period, Retry: firstRetry,
		Deadline: syncDeadline,
		Gone:     remote.Exited(),
		Hooks:    feed.Hooks{Acked: s.acked, Failed: s.failed},
	})
	if err != nil {
		return err
	}
	p.begin(cursor, f)
	defer p.end()

	// One that keeps nothing in the kernel can only listen once it is Active, and
	// says of each Service whether that went well when it hears of it. One that
	// keeps rules is filled before it catches a packet.
	if slices.Contains(d.Limits, sdk.LimitDiesWithProcess) {
		if err := s.activate(); err != nil {
			return err
		}
	}
	err = f.Run(ctx)
	if errors.Is(err, feed.ErrGone) || outer.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// A session is with one process.
type session struct {
	*plane
	remote *wire.Remote
	ctx    context.Context
	cancel context.CancelCauseFunc
	active bool
}

func (s *session) activate() error {
	if err := s.remote.SetRole(s.ctx, sdk.Active); err != nil {
		return fmt.Errorf("make it active: %w", err)
	}
	s.active = true
	s.mu.Lock()
	s.role = sdk.Active
	s.mu.Unlock()
	s.reports.Report(report.Event{Reason: dataplaneActive, Object: s.name, Message: "it serves this node"})
	return nil
}

func (s *session) acked(a feed.Acked) {
	s.mu.Lock()
	s.last, s.took, s.failure = time.Now(), a.Took, ""
	s.mu.Unlock()
	s.log.Debug("update confirmed", "rev", a.Update.To, "set", len(a.Update.Set), "deleted", len(a.Update.Delete),
		"failed", len(a.Result.Failed), "took", round(a.Took))
	if s.active {
		return
	}
	if err := s.activate(); err != nil {
		s.cancel(err)
	}
}

func (s *session) failed(err error) {
	s.mu.Lock()
	s.failure = err.Error()
	s.mu.Unlock()
	s.reports.Report(report.Event{Warning: true, Reason: syncFailed, Object: s.name, Message: err.Error()})
	if errors.Is(err, wire.ErrFenced) {
		s.cancel(err) // another host has it now
	}
}

func (p *plane) begin(c *track.Cursor, f *feed.Feed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cursor, p.feed, p.failure = c, f, ""
}

func (p *plane) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cursor, p.feed, p.role = nil, nil, 0
}

func (p *plane) periods() (minGap, period time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.minGap, p.period
}

// setPeriods changes them, also for the session that goes on.
func (p *plane) setPeriods(minGap, period time.Duration) error {
	p.mu.Lock()
	p.minGap, p.period = minGap, period
	f := p.feed
	p.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.SetPeriods(minGap, period)
}

// transition reports what became of the process.
func (p *plane) transition(t supervise.Transition) {
	e := report.Event{Time: t.Time, Object: p.name, Message: t.Why}
	switch {
	case t.From == t.To:
		e.Reason = pluginNote
	case t.To == supervise.Serving:
		e.Reason, e.Message = pluginServing, fmt.Sprintf("pid %d is up", t.PID)
	case t.To == supervise.Waiting, t.To == supervise.Suspect:
		e.Reason, e.Warning = pluginDown, true
	case t.To == supervise.Refused:
		e.Reason, e.Warning = pluginRefuses, true
	case t.To == supervise.Starting && t.From == supervise.Serving && t.Why != "":
		e.Reason, e.Warning = pluginDown, true // it is started again at once
	default:
		return
	}
	p.reports.Report(e)
}

// line takes in one line of the plugin's log.
func (p *plane) line(l wire.LogLine) {
	p.book.add(admin.LogLine{Time: l.Time, Level: l.Level.String(), Message: l.String(), Dropped: l.Dropped})
	args := make([]any, 0, 2*len(l.Attrs)+4)
	args = append(args, "plugin", p.name)
	for _, a := range l.Attrs {
		args = append(args, a.Key, a.Value.String())
	}
	if l.Dropped > 0 {
		args = append(args, "dropped", l.Dropped)
	}
	p.log.Log(levelOf(l.Level), l.Message, args...)
}

func levelOf(l slog.Level) hclog.Level {
	switch {
	case l < slog.LevelInfo:
		return hclog.Debug
	case l < slog.LevelWarn:
		return hclog.Info
	case l < slog.LevelError:
		return hclog.Warn
	}
	return hclog.Error
}
