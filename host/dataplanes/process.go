// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A State is the state of a dataplane's process.
type State uint8

// Values of State.
const (
	Stopped  State = iota // it was not started yet, or is no longer needed
	Starting              // start, Hello and Configure
	Serving               // in a session
	Suspect               // it missed a heartbeat
	Waiting               // it ended or did not start, and will be restarted
	Refused               // it cannot run here; retried when something changes
)

// states has the name of each State, and the event that reports it.
var states = [...]struct {
	name, reason string
	warns        bool
}{
	Stopped:  {"stopped", report.PluginStopped, false},
	Starting: {"starting", report.PluginStarting, false},
	Serving:  {"serving", report.PluginServing, false},
	Suspect:  {"suspect", report.PluginDown, true},
	Waiting:  {"waiting", report.PluginDown, true},
	Refused:  {"refused", report.PluginRefuses, true},
}

func (s State) String() string { return states[s].name }

// A status describes the process of a dataplane.
type status struct {
	admin.Plugin // only Why, PID, Up, LastEnd, EndedAt and Next

	state       State
	description sdk.Description // of the plugin; kept after the process ends
	starts      int             // number of starts, including failed ones
	vitals      wire.Vitals
	looked      time.Time // when the host last checked the process; zero if it was not started
}

// restarts returns the number of starts after the first.
func (s status) restarts() int { return max(0, s.starts-1) }

// isComing reports whether there is a process, or will be one soon.
func (s status) isComing() bool {
	switch s.state {
	case Waiting, Refused:
		return false
	case Stopped:
		return s.starts == 0
	}
	return true
}

func (p *dataplane) shownStatus() status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// setState changes the state of the process and reports that.
func (p *dataplane) setState(to State, why string) {
	p.mu.Lock()
	st := &p.status
	from, pid := st.state, st.PID
	st.state, st.Why, st.Next = to, why, time.Time{}
	if to != Serving && to != Suspect {
		st.Up, st.PID, st.vitals = time.Time{}, 0, wire.Vitals{}
	}
	p.mu.Unlock()
	e := report.Event{Reason: states[to].reason, Warning: states[to].warns, Object: p.name, Message: why}
	switch {
	case to == Serving:
		e.Message = fmt.Sprintf("pid %d is up", pid)
	case to == Stopped && p.plugin.Address != "" && pid != 0: // something else runs it
		e.Reason, e.Message = report.PluginLeft, fmt.Sprintf("%s; pid %d continues to serve", why, pid)
	}
	if from != to {
		p.host.Reports.Report(e)
	}
	p.notify()
}

var (
	errNotNeeded  = errors.New("it is no longer needed")
	errNewOptions = errors.New("its options have changed")
	errHostEnds   = errors.New("the host ends")
)

// open starts a process, or connects to one that something else runs, and begins a session with it. The process gets the
// role before the first update; with the zero role it keeps the role that the kernel shows. If a process is in session
// already, because something else runs it, that session ends and the next one has these options. If the process refuses
// the options, it gets the former ones again.
func (p *dataplane) open(ctx context.Context, role sdk.Role, options json.RawMessage) error {
	goesOn := p.stop(errNewOptions)
	binary, former, err := p.prepare(options)
	if goesOn {
		p.setState(Starting, "")
	} else {
		p.setState(Starting, p.shownStatus().Why)
	}
	if err != nil {
		return err
	}
	process, err := p.plugin.Start(ctx, binary, options, p.logged.line)
	if refusal, refused := errors.AsType[*sdk.Refusal](err); refused && goesOn {
		p.logged.line(wire.LogLine{Time: time.Now(), Level: slog.LevelError, Message: "the plugin refused the new options and continues with the former ones: " + refusal.Error()})
		p.mu.Lock()
		p.options = former
		p.mu.Unlock()
		process, err = p.plugin.Start(ctx, binary, former, p.logged.line)
	}
	if err != nil {
		return err
	}
	over := make(chan error, 2) // from the session, and to end the process
	ended := make(chan struct{})
	s := p.newSession(process, role)
	p.mu.Lock()
	p.status.description, p.status.PID, p.status.Up = process.Description, process.Hello().PID, time.Now()
	p.end, p.ended = over, ended
	p.mu.Unlock()
	p.setState(Serving, "")
	go func() { // ends with the process, whose end stop and wait await
		defer close(ended)
		p.run(process, s, over)
	}()
	return nil
}

// prepare opens the binary to start, and returns it with the previous options.
func (p *dataplane) prepare(options json.RawMessage) (*launch.Binary, json.RawMessage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	former := p.options
	p.options = options
	p.identity, p.status.looked = p.plugin.Identify(), time.Now()
	p.status.starts++
	if p.pinned {
		return p.binary, former, nil
	}
	binary, err := p.plugin.Open()
	if err != nil {
		return nil, former, err
	}
	if p.binary != nil {
		p.binary.Close()
	}
	p.binary = binary
	return binary, former, nil
}

// run runs the session of a process until the process has ended.
func (p *dataplane) run(process *launch.Process, s *session, over chan error) {
	ctx, cancel := context.WithCancelCause(p.host.life)
	serving := make(chan struct{})
	go func() { // ends with ctx
		defer close(serving)
		if err := p.serve(ctx, s); err != nil {
			select {
			case over <- err:
			default: // another reason to end came first
			}
		}
	}()
	up := time.Now()
	why := process.Watch(ctx, over, func(v wire.Vitals, doubt string) { p.recordHeartbeat(s, v, doubt) })
	if cause := context.Cause(p.host.life); cause != nil && errors.Is(why, cause) {
		why = fmt.Errorf("%w: %w", errHostEnds, cause)
		if cause == p.host.life.Err() { // "context canceled" adds nothing
			why = errHostEnds
		}
	}
	cancel(why)
	<-serving
	p.mu.Lock()
	p.status.LastEnd, p.status.EndedAt = why.Error(), time.Now()
	p.end = nil
	p.session = nil
	p.mu.Unlock()
	s.close()
	switch {
	case errors.Is(why, errNewOptions): // not a failure: open continues
	case errors.Is(why, errNotNeeded), errors.Is(why, errHostEnds):
		p.setState(Stopped, why.Error())
		p.host.processLost(p, plane.Loss{Err: why, Reason: plane.Asked})
	default:
		p.host.processLost(p, p.lost(why, time.Since(up)))
	}
}

// lost sets the state after a process has ended or failed to start, and returns the Loss for the plan. served is the
// duration of the session; zero means that the process did not start.
func (p *dataplane) lost(err error, served time.Duration) plane.Loss {
	l, text := lossOf(err, served)
	l.Dialed, l.Jitter = p.plugin.Address != "", rand.Float64()
	switch {
	case p.host.life.Err() != nil:
		p.setState(Stopped, errHostEnds.Error())
	case l.Reason == plane.Unable || l.Reason == plane.Fenced:
		p.setState(Refused, text)
	default:
		p.setState(Waiting, text)
	}
	return l
}

// lossOf classifies the error that ended a process or its start, and returns it in words for status and events.
func lossOf(err error, served time.Duration) (plane.Loss, string) {
	l, text := plane.Loss{Err: err, Served: served}, err.Error()
	_, refused := errors.AsType[*sdk.Refusal](err)
	switch {
	case errors.Is(err, launch.ErrRestart):
		l.Reason = plane.Asked
	case errors.Is(err, wire.ErrFenced):
		l.Reason, text = plane.Fenced, "another host has taken it over; pointsman plugin restart takes it back"
	case refused && served == 0: // a Refusal later in the session is an ordinary failure of a call
		l.Reason = plane.Unable
	}
	return l, text
}

// setNextStart sets the time of the next start, for status.
func (p *dataplane) setNextStart(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status.state == Waiting || p.status.state == Refused {
		p.status.Next = until
	}
}

// noteChecked records that the host has checked the process. It returns true if the process waits to be started and
// should start at once, because the file of its plugin has changed.
func (p *dataplane) noteChecked(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil && p.status.state != Starting {
		p.status.looked = now
	}
	awaited := p.status.state == Waiting || p.status.state == Refused
	return awaited && !p.pinned && p.plugin.Identify() != p.identity
}

// stop ends the process for a reason, waits for its end, and reports whether there was one. What is in the kernel stays.
func (p *dataplane) stop(why error) bool {
	was := p.beginStop(why)
	p.wait()
	return was
}

// beginStop asks the process to end for a reason, without waiting, and reports whether there is
// one.
func (p *dataplane) beginStop(why error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		return false
	}
	select {
	case p.end <- why:
	default: // another reason to end came first
	}
	return true
}

// wait waits for the end of the process.
func (p *dataplane) wait() {
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// isOver reports whether the process has ended.
func (p *dataplane) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end == nil
}

// currentOptions returns the options of the current process, or of the next one if there is
// none.
func (p *dataplane) currentOptions() json.RawMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.options
}

// pin makes all later starts use the binary that was started last, even if the file at its path
// is replaced. It cannot pin scripts.
func (p *dataplane) pin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pinned = p.binary != nil
}

// closeBinary closes the binary that was started last. The dataplane must not be started after
// that.
func (p *dataplane) closeBinary() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.binary != nil {
		p.binary.Close()
		p.binary = nil
	}
}

// isReplaced reports whether the binary on disk differs from the running one. It is not known
// for plugins that something else runs.
func (p *dataplane) isReplaced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.plugin.Address != "" {
		return false
	}
	now := p.plugin.Identify()
	return now != "" && p.identity != "" && (now != p.identity || p.pinned)
}
