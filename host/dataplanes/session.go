// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// firstRetry is how soon an update that failed is tried again; the feed doubles it
// with each failure in a row.
const firstRetry = time.Second

// syncDeadline is for one update; package wire gives it no more. The longest is a first
// Full of a large cluster into a kernel that is slow to take it.
const (
	syncDeadline  = 3 * time.Minute
	debugDeadline = 24 * time.Hour // of a plugin that may be stopped at a breakpoint
)

func (p *dataplane) syncDeadline() time.Duration {
	if p.process.plugin.Debug {
		return debugDeadline
	}
	return syncDeadline
}

// A session is with one process of a dataplane, until that is gone.
type session struct {
	dataplane *dataplane
	remote    *wire.Remote
	desc      sdk.Description
	ctx       context.Context
	cancel    context.CancelCauseFunc

	// Without them the process is sent nothing: it is being cleared.
	cursor *track.Cursor
	feed   *feed.Feed

	// The dataplane's mutex guards what follows.
	role sdk.Role
	full bool // it has confirmed everything
}

// serve runs the session with a process, until that is gone.
func (p *dataplane) serve(outer context.Context, life supervise.Life) error {
	ctx, cancel := context.WithCancelCause(outer)
	s := &session{dataplane: p, remote: life.Remote, desc: life.Description, ctx: ctx, cancel: cancel}
	defer cancel(nil)
	cursor := p.tracker.Cursor(life.Description)
	defer cursor.Close()
	p.mu.Lock()
	periods := p.periods
	p.mu.Unlock()
	f, err := feed.New(clock.RealClock{}, cursor, s.remote, feed.Settings{
		MinGap: periods.gap, Period: periods.retry, Retry: firstRetry,
		Deadline: p.syncDeadline(),
		Gone:     s.remote.Exited(),
		Hooks:    feed.Hooks{Acked: s.acked, Failed: s.failed},
	})
	if err != nil {
		return err
	}
	defer s.ended()
	defer s.end()
	if !s.begin(cursor, f) {
		<-ctx.Done()
		return nil
	}
	role := s.firstRole()
	p.hasStarted(nil)
	p.notify()
	if role != 0 {
		if err := p.become(ctx, s, role); err != nil {
			return err
		}
	}
	if err := f.Run(ctx); errors.Is(err, feed.ErrGone) || outer.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// begin makes s the session of the dataplane. It is false for one that is being cleared
// away: its process is there for that, and nothing else.
func (s *session) begin(c *track.Cursor, f *feed.Feed) bool {
	p := s.dataplane
	defer p.notify()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session, p.followed.failure = s, ""
	p.writer, p.repairs.begun = writer{reported: p.writer.reported}, false
	if p.clearing {
		return false
	}
	s.cursor, s.feed = c, f
	return true
}

func (s *session) end() {
	p := s.dataplane
	defer p.notify()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session = nil
	p.served = p.served && !diesWithProcess(s.desc) // rules outlive their process
}

// ended tells of the end of the process, which its supervisor has seen.
func (s *session) ended() {
	why := s.dataplane.status().LastEnd
	if why == "" {
		why = errNoProcess.Error()
	}
	s.dataplane.hooks.ended(s.dataplane, errors.New(why))
}

// fed reports whether there is a session in which the process is sent Services.
func (s *session) fed() bool { return s != nil && s.feed != nil }

// filled reports whether there is a session in which everything was confirmed. The caller
// has the dataplane's mutex.
func (s *session) filled() bool { return s != nil && s.full }

// is reports whether there is a session with a process in that role. The caller has the
// dataplane's mutex.
func (s *session) is(role sdk.Role) bool { return s != nil && s.role == role }

// status returns how far the process has followed. The caller has the dataplane's mutex.
func (s *session) status() track.CursorStatus {
	if s == nil || s.cursor == nil {
		return track.CursorStatus{}
	}
	return s.cursor.Status()
}

// firstRole returns the role that the process is given before it is sent anything, where it must be
// so: one that keeps nothing in the kernel can only listen once it is Active, and
// says of each Service whether that went well when it is sent. One that keeps
// rules is filled before it catches a packet; and one that is to catch none must
// not begin to.
func (s *session) firstRole() sdk.Role {
	p := s.dataplane
	p.mu.Lock()
	defer p.mu.Unlock()
	if st := p.starting; st != nil && (st.role == sdk.Standby || st.role == sdk.Active && diesWithProcess(s.desc)) {
		return st.role
	}
	return 0
}

// become sets the role of the process of a session, once it has the writer's lock that this takes.
func (p *dataplane) become(ctx context.Context, s *session, role sdk.Role) error {
	err := unlessBusy(ctx, func() error { return p.noteBusy(s, s.remote.SetRole(ctx, role)) })
	if err != nil {
		return fmt.Errorf("make it %s: %w", role, err)
	}
	p.hasBecome(s, role)
	return nil
}

// hasBecome notes that the process of a session has taken a role.
func (p *dataplane) hasBecome(s *session, role sdk.Role) {
	p.mu.Lock()
	was := s.role
	s.role = role
	p.observe()
	p.mu.Unlock()
	if role == sdk.Active && was != sdk.Active {
		p.reports.Report(report.Event{Reason: report.DataplaneActive, Object: p.name, Message: "it serves this node"})
	}
	if s.feed != nil && role != sdk.Yielded {
		s.feed.Hurry()
	}
	p.notify()
}

// acked notes that the process has confirmed an update. The feed's loop waits for it.
func (s *session) acked(a feed.Acked) {
	p := s.dataplane
	defer p.notify()
	s.note(a)
	_ = p.noteBusy(s, nil)
	if a.Update.Full {
		s.fill()
	}
}

// fill notes that a Full was confirmed, unless everything is owed again by now.
func (s *session) fill() {
	p := s.dataplane
	p.mu.Lock()
	defer p.mu.Unlock()
	s.full = !s.cursor.OwesEverything()
	p.observe()
}

func (s *session) note(a feed.Acked) {
	p := s.dataplane
	p.mu.Lock()
	p.followed.took, p.followed.failure, p.followed.last, p.succeeds = a.Took, "", time.Now(), false
	p.mu.Unlock()
	p.hooks.applied(p, a)
	p.log.Debug("update confirmed", "rev", a.Update.To, "set", len(a.Update.Set), "deleted", len(a.Update.Delete),
		"failed", len(a.Result.Failed), "took", phrase.Round(a.Took))
}

// failed notes that an update failed altogether. One that was answered with a *sdk.Busy has its own events.
func (s *session) failed(err error) {
	p := s.dataplane
	defer p.notify()
	if errors.As(p.noteBusy(s, err), new(*sdk.Busy)) {
		return
	}
	p.mu.Lock()
	p.followed.failure = err.Error()
	p.mu.Unlock()
	p.hooks.refused()
	p.reports.Report(report.Event{Warning: true, Reason: report.SyncFailed, Object: p.name, Message: err.Error()})
	if errors.Is(err, wire.ErrFenced) {
		s.cancel(err) // another host has it now
	}
}
