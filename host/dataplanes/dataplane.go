// SPDX-License-Identifier: Apache-2.0

package dataplanes

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
const syncDeadline = 3 * time.Minute

// A dataplane is a mode as the host runs it: a process that supervise keeps
// alive, and for each life of it a session.
type dataplane struct {
	name       string
	slot       string // of its process, where there are two of the mode
	tracker    *track.Tracker
	reports    *report.Reporter
	applied    func(feed.Acked) // an update was confirmed
	refused    func()           // an update failed altogether
	log        hclog.Logger
	book       *logBook
	supervisor *supervise.Supervisor

	lost func(*dataplane, string) // called when its process is gone or hangs; nil: nobody asks

	ctx    context.Context         // from start to Stop
	cancel context.CancelCauseFunc // ends the process; nil: it was not started
	ended  chan struct{}           // closed when it is over

	plugin supervise.Plugin
	ward   ward
	hunts  sync.WaitGroup // for what the process dies of

	part chan struct{} // holds an element while the process is told its role

	mu      sync.Mutex // guards what follows
	minGap  time.Duration
	period  time.Duration
	want    sdk.Role     // that it is to have; zero: as it finds itself
	leaving bool         // it is being cleared away: it is told nothing more
	remote  *wire.Remote // nil: no session
	feed    *feed.Feed
	held    *feed.Feed    // that waits for Release
	cursor  *track.Cursor // of the session
	filled  bool          // it has confirmed everything, in this session
	role    sdk.Role
	writing writing   // how its process stands to the writer's lock
	last    time.Time // when an update was served; zero: none was, in any session
	served  bool      // it was Active and had confirmed everything when its process was last seen
	mortal  bool      // it serves only while its process runs
	took    time.Duration
	lines   logLimit
	failure string // of the last Sync, where it failed

	succeeds    bool // it takes the place of another process of its mode, and only plans until it is promoted
	unannounced bool // it was made Active, and is not the writer yet
}

// supervised gives the dataplane its process. It begins with supervisor.Run.
func (p *dataplane) supervised(plugin supervise.Plugin) {
	p.plugin = plugin
	p.supervisor = supervise.New(plugin, supervise.Hooks{
		Session:    p.session,
		Transition: p.transition,
		Log:        p.line,
		Beat:       p.beat,
	})
}

// session feeds one process until it is gone.
func (p *dataplane) session(outer context.Context, life supervise.Life) error {
	ctx, cancel := context.WithCancelCause(outer)
	defer cancel(nil)
	remote, d := life.Remote, life.Description
	for _, w := range remote.Warnings() {
		p.reports.Report(report.Event{Reason: report.PluginNote, Object: p.name, Message: w})
	}
	cursor := p.tracker.Cursor(d)
	defer cursor.Close()

	s := &session{dataplane: p, remote: remote, ctx: ctx, cancel: cancel, trial: life.Trial, passed: life.Passed}
	minGap, period := p.periods()
	cursor.Keep(p.ward.names()...)
	f, err := feed.New(clock.RealClock{}, cursor, teller{remote, &p.ward}, feed.Settings{
		MinGap: minGap, Period: period, Retry: firstRetry,
		Deadline: syncDeadline,
		Gone:     remote.Exited(),
		Hooks:    feed.Hooks{Acked: s.acked, Failed: s.failed},
	})
	if err != nil {
		return err
	}
	defer p.end()
	if !p.begin(remote, cursor, f, slices.Contains(d.Limits, sdk.LimitDiesWithProcess)) {
		<-ctx.Done()
		return nil
	}

	if err := s.first(d); err != nil {
		return err
	}
	err = f.Run(ctx)
	if errors.Is(err, feed.ErrGone) {
		p.bury(p.life())
	}
	if errors.Is(err, feed.ErrGone) || outer.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// A session is with one process.
type session struct {
	*dataplane
	remote *wire.Remote
	ctx    context.Context
	cancel context.CancelCauseFunc
	trial  bool   // it may not serve yet; read and written by the feed's loop, once that runs
	passed func() // says that it may
}

// first gives the process its role before it is told anything, where it must be
// so: one that keeps nothing in the kernel can only listen once it is Active, and
// says of each Service whether that went well when it hears of it. One that keeps
// rules is filled before it catches a packet; and one that is to catch none must
// not begin to.
func (s *session) first(d sdk.Description) error {
	if s.trial {
		return s.become(s.ctx, s.remote, onTrial(d))
	}
	s.mu.Lock()
	want := s.want
	s.mu.Unlock()
	if want == sdk.Standby || want != 0 && slices.Contains(d.Limits, sdk.LimitDiesWithProcess) {
		return s.play()
	}
	return nil
}

// play tells the process its role, if it does not have it.
func (s *session) play() error {
	give, err := s.take(s.ctx)
	if err != nil {
		return err
	}
	defer give()
	s.mu.Lock()
	want, has := s.want, s.role
	s.mu.Unlock()
	if want == 0 || want == has {
		return nil
	}
	return s.become(s.ctx, s.remote, want)
}

// take waits for the right to tell the process its role, which give returns.
func (p *dataplane) take(ctx context.Context) (give func(), err error) {
	select {
	case p.part <- struct{}{}:
		return func() { <-p.part }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s is being told another role: %w", p.name, ctx.Err())
	}
}

// become tells a process its role. The caller has part.
func (p *dataplane) become(ctx context.Context, remote *wire.Remote, role sdk.Role) error {
	if err := remote.SetRole(ctx, role); err != nil {
		return fmt.Errorf("make it %s: %w", role, err)
	}
	p.mu.Lock()
	was := p.role
	p.role = role
	p.unannounced = role == sdk.Active && (was != sdk.Active || p.unannounced)
	p.observe()
	p.mu.Unlock()
	p.ask(ctx, remote)
	return nil
}

func (s *session) acked(a feed.Acked) {
	s.mu.Lock()
	s.took, s.failure, s.writing.steps = a.Took, "", len(a.Result.Steps)
	if !a.Result.Planned {
		s.last, s.succeeds = time.Now(), false
	}
	s.mu.Unlock()
	if a.Result.Planned {
		s.ask(s.ctx, s.remote) // which process has the lock
	} else {
		s.applied(a)
	}
	s.log.Debug("update confirmed", "rev", a.Update.To, "set", len(a.Update.Set), "deleted", len(a.Update.Delete),
		"failed", len(a.Result.Failed), "planned", a.Result.Planned, "steps", len(a.Result.Steps), "took", phrase.Round(a.Took))
	tried := s.trial // the first update of a session is a Full, so it was told everything
	s.trial = false
	if err := s.play(); err != nil {
		s.cancel(err)
		return
	}
	if tried {
		s.hunts.Go(s.prove) // ends with the session
	}
	if a.Update.Full {
		s.mu.Lock()
		s.filled = true
		s.observe()
		s.mu.Unlock()
	}
}

func (s *session) failed(err error) {
	s.mu.Lock()
	s.failure = err.Error()
	s.mu.Unlock()
	s.refused()
	s.reports.Report(report.Event{Warning: true, Reason: report.SyncFailed, Object: s.name, Message: err.Error()})
	if errors.Is(err, wire.ErrFenced) {
		s.cancel(err) // another host has it now
	}
}

// begin is false for a dataplane that is being cleared away: it is there to be told that,
// and nothing else.
func (p *dataplane) begin(r *wire.Remote, c *track.Cursor, f *feed.Feed, mortal bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remote, p.filled, p.failure = r, false, ""
	p.writing = writing{told: p.writing.told}
	p.mortal = mortal
	if p.leaving {
		return false
	}
	p.cursor, p.feed = c, f
	return true
}

func (p *dataplane) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remote, p.cursor, p.feed, p.filled, p.role = nil, nil, nil, false, 0
	p.served = p.served && !p.mortal // rules outlive their process
}

func (p *dataplane) periods() (minGap, period time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.minGap, p.period
}

// setPeriods changes them, also for the session that goes on.
func (p *dataplane) setPeriods(minGap, period time.Duration) error {
	p.mu.Lock()
	p.minGap, p.period = minGap, period
	f := p.feed
	p.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.SetPeriods(minGap, period)
}

func (p *dataplane) gone(why string) {
	if p.lost != nil {
		p.lost(p, why)
	}
}

// transition reports what became of the process.
func (p *dataplane) transition(t supervise.Transition) {
	e := report.Event{Time: t.Time, Object: p.name, Message: t.Why}
	switch {
	case t.From == t.To:
		e.Reason = report.PluginNote
	case t.To == supervise.Serving:
		e.Reason, e.Message = report.PluginServing, fmt.Sprintf("pid %d is up", t.PID)
	case t.To == supervise.Trying:
		e.Reason, e.Message = report.PluginStarting, fmt.Sprintf("pid %d is up, and is tried before it may serve", t.PID)
	case t.To == supervise.Waiting, t.To == supervise.Suspect:
		p.gone(t.Why)
		e.Reason, e.Warning = report.PluginDown, true
	case t.To == supervise.Refused:
		p.gone(t.Why)
		e.Reason, e.Warning = report.PluginRefuses, true
	case t.To == supervise.Starting && t.From == supervise.Serving && t.Why != "": // it is started again at once
		p.gone(t.Why)
		e.Reason, e.Warning = report.PluginDown, true
	case t.To == supervise.Quarantined:
		p.gone(t.Why)
		e.Reason, e.Warning = report.PluginBanned, true
	case t.To == supervise.Starting:
		e.Reason = report.PluginStarting
	default:
		e.Reason = report.PluginStopped
	}
	p.reports.Report(e)
}

// line takes in one line of the plugin's log.
func (p *dataplane) line(l wire.LogLine) {
	p.book.add(admin.LogLine{Time: l.Time, Level: l.Level.String(), Message: l.String(), Dropped: l.Dropped})
	if l.Message == sdk.NotSet && l.Dropped == 0 {
		p.reports.Report(notSet(p.name, l))
		return
	}
	if !p.loggable() {
		return
	}
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

// loggable reports whether one more line of the plugin's log goes into the host's, and says
// there how many did not.
func (p *dataplane) loggable() bool {
	p.mu.Lock()
	var pass, say bool
	var left uint64
	p.lines, pass, say, left = p.lines.line(time.Now())
	p.mu.Unlock()
	if say {
		p.log.Warn("lines of the plugin's log are left out here: it says too much", "plugin", p.name, "lines", left, "try", "pointsman plugin logs "+p.name)
	}
	return pass
}

// notSet is the event of a parameter that a plugin could not set.
func notSet(plugin string, l wire.LogLine) report.Event {
	said := make(map[string]string)
	for _, a := range l.Attrs {
		said[a.Key] = a.Value.String()
	}
	return report.Event{Time: l.Time, Warning: true, Reason: report.ParameterNotSet, Object: plugin,
		Message: fmt.Sprintf("%s stays as it is, and was to be %s: %s; set it on the machine itself", said["path"], said["value"], said["err"])}
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
