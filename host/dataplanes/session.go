// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// firstRetry is the wait before the first retry of a failed update. The feed doubles it with
// each consecutive failure.
const firstRetry = time.Second

// syncDeadline limits one update; package wire has the same limit. The longest update is the
// first Full of a large cluster into a slow kernel.
const (
	syncDeadline  = 3 * time.Minute
	debugDeadline = 24 * time.Hour // for a plugin that may stop at a breakpoint
)

func (p *dataplane) syncDeadline() time.Duration {
	if p.plugin.Debug {
		return debugDeadline
	}
	return syncDeadline
}

// A session lasts from Configure to the end of one process of a dataplane.
type session struct {
	dataplane *dataplane
	remote    *wire.Remote
	first     sdk.Role                // assigned before the first update; zero if none
	cancel    context.CancelCauseFunc // ends the session, and with it the process

	// The cursor and feed are nil while the dataplane is being cleaned up: the process is sent
	// no updates.
	cursor *track.Cursor
	feed   *feed.Feed

	// The fields below are guarded by the dataplane's mutex.
	role sdk.Role
	full bool // it has confirmed the whole state
}

// newSession returns a session with a process that first gets role. If the dataplane is being
// cleaned up, the session has no feed.
func (p *dataplane) newSession(process *launch.Process, role sdk.Role) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &session{dataplane: p, remote: process.Remote}
	if !p.clearing {
		settings := p.host.Now()
		s.first = firstRole(process.Description, role)
		s.cursor = p.host.Tracker.Cursor(process.Description)
		s.feed = feed.New(s.cursor, s.remote, feed.Settings{
			MinGap: settings.MinSyncPeriod.Duration, Period: settings.SyncPeriod.Duration, Retry: firstRetry,
			Deadline: p.syncDeadline(),
			Gone:     s.remote.Exited(), Acked: s.acked, Failed: s.failed,
		})
	}
	p.session, p.followed.Error = s, ""
	p.writer, p.repairs.begun = writer{reported: p.writer.reported}, false
	return s
}

// firstRole returns the role to assign before the first update, if role is planned; zero means
// none. A dataplane that dies with its process can listen only when Active, and reports for
// each Service whether that succeeded, so it becomes Active first. A dataplane with rules in
// the kernel gets the whole state before it receives packets. A dataplane planned for Standby
// must get that role at once, so that it does not start to receive packets.
func firstRole(d sdk.Description, role sdk.Role) sdk.Role {
	if role == sdk.Standby || role == sdk.Active && diesWithProcess(d) {
		return role
	}
	return 0
}

// serve assigns the first role and sends updates until ctx ends or the process is gone. If it
// returns an error, the process must be ended.
func (p *dataplane) serve(ctx context.Context, s *session) error {
	if s.feed == nil {
		return nil
	}
	serving, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.cancel = cancel
	if s.first != 0 {
		if err := p.setSessionRole(serving, s, s.first); err != nil {
			return err
		}
	}
	if err := s.feed.Run(serving); errors.Is(err, feed.ErrGone) || ctx.Err() != nil {
		return nil
	}
	return context.Cause(serving)
}

// close closes the cursor of an ended session.
func (s *session) close() {
	if s.cursor != nil {
		s.cursor.Close()
	}
}

// hasFeed reports whether there is a session with a feed.
func (s *session) hasFeed() bool { return s != nil && s.feed != nil }

// filled reports whether there is a session in which the whole state is confirmed. The caller
// holds the dataplane's mutex.
func (s *session) filled() bool { return s != nil && s.full }

// hasRole reports whether there is a session whose process has the role. The caller holds the
// dataplane's mutex.
func (s *session) hasRole(role sdk.Role) bool { return s != nil && s.role == role }

// status returns the progress of the session. The caller holds the dataplane's mutex.
func (s *session) status() track.CursorStatus {
	if s == nil || s.cursor == nil {
		return track.CursorStatus{}
	}
	return s.cursor.Status()
}

// setSessionRole sets the role of the session's process. It waits for the writer's lock if the
// role needs it.
func (p *dataplane) setSessionRole(ctx context.Context, s *session, role sdk.Role) error {
	err := retryWhileBusy(ctx, func() error { return p.noteBusy(s, s.remote.SetRole(ctx, role)) })
	if err != nil {
		return fmt.Errorf("set role %s: %w", role, err)
	}
	p.recordRole(s, role)
	return nil
}

// recordRole records that the session's process has a new role.
func (p *dataplane) recordRole(s *session, role sdk.Role) {
	p.mu.Lock()
	was := s.role
	s.role = role
	p.mu.Unlock()
	if role == sdk.Active && was != sdk.Active {
		p.host.Reports.Report(report.Event{Reason: report.DataplaneActive, Object: p.name, Message: "it serves this node"})
	}
	if s.feed != nil && role != sdk.Yielded {
		s.feed.RetryBusy()
	}
	p.notify()
}

// acked records that the process has confirmed an update. The feed waits for it to return.
func (s *session) acked(a feed.Acked) {
	p := s.dataplane
	defer p.notify()
	p.mu.Lock()
	p.followed, p.succeeds = admin.Sync{Last: time.Now(), TookMS: float64(a.Took.Microseconds()) / 1000}, false
	p.mu.Unlock()
	if p.host.serving() == p { // what another dataplane confirms is not served yet, or no longer
		p.host.Applied(a)
	}
	p.host.Log.Debug("update confirmed", "rev", a.Update.To, "set", len(a.Update.Set), "deleted", len(a.Update.Delete),
		"failed", len(a.Result.Failed), "took", phrase.Round(a.Took))
	_ = p.noteBusy(s, nil)
	if a.Update.Full {
		p.mu.Lock()
		defer p.mu.Unlock()
		s.full = !s.cursor.OwesEverything() // another Full may be owed by now
	}
}

// failed records that a whole update failed. Busy answers have events of their own.
func (s *session) failed(err error) {
	p := s.dataplane
	defer p.notify()
	if errors.As(p.noteBusy(s, err), new(*sdk.Busy)) {
		return
	}
	p.mu.Lock()
	p.followed.Error = err.Error()
	p.mu.Unlock()
	p.host.Refused()
	p.host.Reports.Report(report.Event{Warning: true, Reason: report.SyncFailed, Object: p.name, Message: err.Error()})
	if errors.Is(err, wire.ErrFenced) {
		s.cancel(err) // another host has taken over the plugin
	}
}
