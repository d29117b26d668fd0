// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/internal/descriptors"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A loop is the goroutine of Run: the machine, and the process it is about.
type loop struct {
	*Supervisor
	now     func() time.Time
	machine Machine
	live    *live // nil: none that is up
	left    int   // pid of the process that was left serving at the end; zero: none
	taken   bool  // that process ends with this one all the same
	kept    *live // the way to which is written down

	giveUp    context.CancelFunc // ends the launching that goes on; nil: there was none
	launching sync.WaitGroup
	sweeping  sync.WaitGroup // ends what former processes have left behind
	looked    atomic.Bool    // for a process that a former host left
	keeps     atomic.Bool    // a process of another major that a former host left
}

// step gives the machine an event, shows the new state, and does the actions.
func (l *loop) step(ctx context.Context, e event) {
	before, pid := l.machine, l.pid()
	var actions []Action
	l.machine.Spared = l.plugin.Address != "" || l.plugin.Debug
	l.machine, actions = l.machine.Step(e.Event, l.now(), jitter)
	if e.came != nil {
		if before.State == Starting && l.machine.State == Serving {
			l.begin(ctx, e.came)
		} else {
			l.drop(e.came)
		}
	}
	if e.Kind == Exited {
		l.lost(e.Why)
	}
	l.tell(before, pid)
	for _, a := range actions {
		switch a {
		case Launch:
			l.start(ctx)
		case Kill:
			l.kill()
			l.end(l.machine.Why)
		case Stop:
			l.end(l.machine.Why)
		}
	}
}

// tick looks at what sends no event.
func (l *loop) tick(ctx context.Context) {
	l.keep()
	if s := l.machine.State; s == Waiting || s == Refused {
		if now := identify(l.plugin.where()); now != l.binary {
			l.step(ctx, event{Event: Event{Kind: Changed, Why: "the binary changed"}})
			return
		}
	}
	l.step(ctx, event{Event: Event{Kind: Tick}})
}

// wake returns when the machine waits for an instant that comes before the next tick.
func (l *loop) wake() <-chan time.Time {
	if l.machine.Next.IsZero() {
		return nil
	}
	return time.After(max(0, l.machine.Next.Sub(l.now())))
}

// pid returns the present process, or zero.
func (l *loop) pid() int {
	if l.live == nil {
		return 0
	}
	return l.live.remote.Hello().PID
}

// tell shows the machine's state, and passes a change of it to the hook. before and pid
// are as they were.
func (l *loop) tell(before Machine, pid int) {
	m := l.machine
	l.show(func(s *Status) {
		s.State, s.Since, s.Why = m.State, m.Since, m.Why
		s.Up, s.Next, s.PID = m.Up, m.Next, l.pid()
		s.Restarts = max(0, m.Launches-1)
		if m.State != Serving && m.State != Suspect {
			s.Vitals = wire.Vitals{}
		}
	})
	if m.State != before.State {
		l.hooks.Transition(Transition{Time: m.Since, From: before.State, To: m.State, Why: m.Why, PID: cmp.Or(l.pid(), pid), Left: l.left, Taken: l.taken})
	}
}

// start launches a process, in a goroutine that ends with an event.
func (l *loop) start(ctx context.Context) {
	l.mu.Lock()
	l.binary = identify(l.plugin.where())
	l.mu.Unlock()
	limited, cancel := context.WithCancel(ctx)
	l.giveUp = cancel
	process, p := l.machine.Launches, l.plugin
	l.launching.Go(func() {
		came, err := l.obtain(limited, p, !l.looked.Load())
		cancel()
		e := event{process: process, came: came, Event: Event{Kind: Launched}}
		if crash, ok := errors.AsType[*crashed](err); ok {
			l.print(crash.said)
		}
		_, refused := errors.AsType[*sdk.Refusal](err)
		switch {
		case refused:
			e.Event = Event{Kind: Refuses, Why: err.Error()}
		case exhausted(err):
			e.Event = Event{Kind: Hindered, Why: fmt.Sprintf("the host is short of descriptors or memory (RLIMIT_NOFILE is %d), which is not the plugin's fault: %v", descriptors.Limit(), err)}
		case err != nil:
			e.Event = Event{Kind: Failed, Why: err.Error()}
		}
		l.send(ctx, e)
	})
}

// send sends e to the loop, unless it has ended; what came with it then ends too.
func (s *Supervisor) send(ctx context.Context, e event) {
	select {
	case s.events <- e:
	case <-ctx.Done():
		if e.came != nil {
			s.drop(e.came)
		}
	}
}

// begin starts what goes on beside a process that is up.
func (l *loop) begin(ctx context.Context, came *live) {
	if came.binary != (identity{}) {
		l.mu.Lock()
		l.binary = came.binary
		l.mu.Unlock()
	}
	l.live = came
	l.show(func(s *Status) {
		s.Version, s.Description = came.description.Version, came.description
	})
	came.startLoops(ctx, l.Supervisor, l.machine.Launches)
	l.keep()
}

// keep makes sure that the way to the present process is written down: at once, and again
// each second if it could not be, or was lost.
func (l *loop) keep() {
	if l.live == nil || l.live.foreign || keptHandle(l.plugin) && l.kept == l.live {
		return
	}
	unwritten := ""
	if err := l.live.keepHandle(l.plugin, l.binary); err != nil {
		unwritten = err.Error()
	} else {
		l.kept = l.live
	}
	l.show(func(s *Status) { s.Unwritten = unwritten })
}

// lost is a process that ended by itself.
func (l *loop) lost(why string) {
	if l.live == nil {
		return
	}
	l.dropProcess()
	l.ended(why)
}

// kill ends a process that does not answer: to ask it would only take time. What it was
// at goes to its log.
func (l *loop) kill() {
	if l.live == nil || l.live.foreign || !runs(l.live.remote.Handle()) {
		return
	}
	l.print(l.live.remote.Abort())
}

// dropProcess ends what goes on beside the present process. What a process that crashed
// printed goes to its log.
func (l *loop) dropProcess() {
	select {
	case <-l.live.remote.Exited():
		l.print(l.live.remote.Exit().Crash())
	default:
	}
	l.live.stop()
	left := remainderOf(l.live.remote)
	l.sweeping.Go(left.end) // finish waits for it
	l.live = nil
}

// print has a plugin's log say what its process printed past it.
func (l *loop) print(said []string) {
	for _, line := range said {
		l.hooks.Log(wire.LogLine{Time: l.now(), Level: slog.LevelError, Message: line, Attrs: []slog.Attr{slog.String("stream", "stderr")}})
	}
}

// end ends the present process, or the launching of one. It takes a little more
// than three seconds at the most.
func (l *loop) end(why string) {
	if l.giveUp != nil {
		l.giveUp()
	}
	if l.live == nil {
		return
	}
	l.dropProcess()
	l.ended(why)
	l.show(func(s *Status) { s.PID = 0 })
	forgetHandle(l.plugin)
}

func (l *loop) ended(how string) {
	l.show(func(s *Status) { s.LastEnd, s.LastEndAt = how, l.now() })
}

// finish stops the plugin or leaves it.
func (l *loop) finish(why string) {
	defer l.sweeping.Wait()
	defer l.launching.Wait()
	if l.live != nil && (l.leaves() || l.live.foreign) {
		l.left, l.taken = l.pid(), !l.live.foreign && os.Getpid() == 1 // the kernel ends a container with its first process
		l.live.detach()
		l.live = nil
	}
	l.step(context.Background(), event{Event: Event{Kind: End, Why: why}})
}

// why returns what ended ctx: the host, unless its cause says otherwise.
func why(ctx context.Context) string {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return cause.Error()
	}
	return "the host ends"
}

// obtain returns a process that is up: at first, the one that a former host left serving,
// if there is one. One that does not answer is ended, for two of one mode would
// hinder each other. One of another major serves on until there is one that fits.
func (l *loop) obtain(ctx context.Context, p Plugin, first bool) (*live, error) {
	if err := p.named(); err != nil {
		return nil, err
	}
	if p.Address != "" {
		return p.connect(ctx)
	}
	if first {
		came, err := p.attach(ctx)
		switch {
		case err == nil:
			l.looked.Store(true)
			return came, nil
		case ctx.Err() != nil && l.leaves():
			return nil, err // it was not asked for long enough to say that it does not answer
		case exhausted(err):
			return nil, err // it was not asked at all
		}
		l.looked.Store(true)
		_, skewed := errors.AsType[*wire.SkewError](err)
		l.keeps.Store(skewed)
		if !skewed {
			l.endLeftover(ctx, p)
		}
	}
	came, err := p.launch(ctx)
	if err == nil && l.keeps.Swap(false) {
		l.endLeftover(ctx, p)
	}
	return came, err
}

func (l *loop) endLeftover(ctx context.Context, p Plugin) {
	pid, err := EndLeftover(ctx, p.StateDir, p.Slot, false)
	if err != nil {
		l.hooks.Transition(Transition{Time: l.now(), Why: err.Error(), PID: pid})
	}
}
