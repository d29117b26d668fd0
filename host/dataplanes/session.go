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
	if p.plugin.Debug {
		return debugDeadline
	}
	return syncDeadline
}

// A session is with one process of a dataplane, until that is gone.
type session struct {
	dataplane *dataplane
	remote    *wire.Remote
	desc      sdk.Description
	first     sdk.Role                // that it is given before it is sent anything; zero: none
	cancel    context.CancelCauseFunc // ends the process with it

	// Without them the process is sent nothing: it is being cleared.
	cursor *track.Cursor
	feed   *feed.Feed

	// The dataplane's mutex guards what follows.
	role sdk.Role
	full bool // it has confirmed everything
}

// newSession returns the session of the dataplane with a process, which is given the role first. Where the dataplane is
// being cleared, the process is there for that and is sent nothing.
func (p *dataplane) newSession(process *supervise.Process, role sdk.Role) (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &session{dataplane: p, remote: process.Remote, desc: process.Description}
	if !p.clearing {
		s.first = firstRole(s.desc, role)
		s.cursor = p.tracker.Cursor(s.desc)
		f, err := feed.New(clock.RealClock{}, s.cursor, s.remote, feed.Settings{
			MinGap: p.periods.gap, Period: p.periods.retry, Retry: firstRetry,
			Deadline: p.syncDeadline(),
			Gone:     s.remote.Exited(),
			Hooks:    feed.Hooks{Acked: s.acked, Failed: s.failed},
		})
		if err != nil {
			s.cursor.Close()
			return nil, err
		}
		s.feed = f
	}
	p.session, p.followed.failure = s, ""
	p.writer, p.repairs.begun = writer{reported: p.writer.reported}, false
	return s, nil
}

// firstRole returns the role that a process is given before it is sent anything, where role is planned for it. One that
// keeps nothing in the kernel can only listen once it is Active, and says of each Service whether that went well when it
// is sent. One that keeps rules is filled before it catches a packet; and one that is to catch none must not begin to.
func firstRole(d sdk.Description, role sdk.Role) sdk.Role {
	if role == sdk.Standby || role == sdk.Active && diesWithProcess(d) {
		return role
	}
	return 0
}

// serve gives the process of a session its first role and updates it until ctx ends or the process is gone. An error
// is one for which the process must end.
func (p *dataplane) serve(ctx context.Context, s *session) error {
	if s.feed == nil {
		return nil
	}
	serving, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.cancel = cancel
	if s.first != 0 {
		if err := p.become(serving, s, s.first); err != nil {
			return err
		}
	}
	if err := s.feed.Run(serving); errors.Is(err, feed.ErrGone) || ctx.Err() != nil {
		return nil
	}
	return context.Cause(serving)
}

// close ends the tracking of a session that is over.
func (s *session) close() {
	if s.cursor != nil {
		s.cursor.Close()
	}
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
		s.feed.RetryBusy()
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
