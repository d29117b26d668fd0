// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Runner makes swaps, one at a time.
type Runner struct {
	host   Host
	events chan Event

	mu      sync.Mutex // guards what follows
	machine Machine
	started Dataplane // that served when the swap began
	coming  Dataplane // that was to replace it; nil: not open yet
	left    Dataplane // that Retire is about; nil: none
	asked   Machine   // what an Ask that was accepted leads to, until the machine has got it; Idle: there is none
}

// New returns a Runner that begins with Run. serving is the dataplane that serves.
func New(h Host, serving Dataplane) *Runner {
	return &Runner{host: h, events: make(chan Event, 16), started: serving}
}

// Resume gives a Runner that has not begun the swap that a host before had under
// way, with the dataplanes of its Parties.
func (r *Runner) Resume(m Machine, keeps, leaves Dataplane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.machine, r.started, r.coming = m, keeps, leaves
	if m.keepsTo() != m.Back {
		r.started, r.coming = leaves, keeps
	}
}

// Machine returns where the swap stands. One that was asked for counts from then on.
func (r *Runner) Machine() Machine {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked.Stage != Idle {
		return r.asked
	}
	return r.machine
}

// ErrBusy is what Ask returns while another swap goes on.
var ErrBusy = errors.New("another swap is under way")

// Ask begins a swap. Machine returns how far it is.
func (r *Runner) Ask(p Plan) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, work := r.machine.Step(Event{Kind: Ask, Plan: p}, time.Now())
	switch {
	case r.asked.Stage != Idle:
		return fmt.Errorf("%w: %s, about to begin", ErrBusy, r.asked.Plan)
	case work == nil, !next.fresh(), !r.send(Event{Kind: Ask, Plan: p}):
		return fmt.Errorf("%w: %s, %s", ErrBusy, r.machine.Plan, r.machine.Stage)
	}
	r.asked = next
	return nil
}

// Retire drains and cleans up d, which is what an earlier swap left in the kernel,
// beside the dataplane that serves. p.Leftover is set.
func (r *Runner) Retire(p Plan, d Dataplane) error {
	r.mu.Lock()
	r.left = d
	r.mu.Unlock()
	return r.Ask(p)
}

// Lost reports that the process of a dataplane is gone or hangs.
func (r *Runner) Lost(d Dataplane, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, to := r.pair(r.machine); d == to && r.machine.Stage != Idle {
		r.send(Event{Kind: Lost, Why: why})
	}
}

// Reset undoes a swap that has not passed its canary.
func (r *Runner) Reset(why string) { r.send(Event{Kind: Reset, Why: why}) }

// send gives the loop an event, and reports whether there was room for it. It never
// blocks. What is lost while the loop has so much to do is no worse than late: each
// stage ends by time.
func (r *Runner) send(e Event) bool {
	select {
	case r.events <- e:
		return true
	default:
		return false
	}
}

// pair returns the one that leaves and the one that stays, as m has it. The caller has the mutex.
func (r *Runner) pair(m Machine) (from, to Dataplane) {
	if m.Back {
		return r.coming, r.started
	}
	return r.started, r.coming
}

// Run makes swaps until ctx ends. One that is under way then stays as it is, and
// the next host goes on with it.
func (r *Runner) Run(ctx context.Context) {
	l := &loop{Runner: r, done: make(chan Event, 1)}
	defer l.held.release() // or the tracker would stay frozen
	defer l.halt()
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	if m := r.Machine(); m.Stage != Idle {
		l.take(ctx, Recover)
	}
	for {
		e := Event{Kind: Tick}
		select {
		case <-ctx.Done():
			return
		case e = <-r.events:
		case e = <-l.done:
		case <-ticker.C:
			if l.progressed() {
				e.Kind = Progressed
			}
		}
		l.take(ctx, func(m Machine, now time.Time) (Machine, []Action) { return m.Step(e, now) })
		if e.Kind == Ask {
			// What was asked may have come to nothing: by the time it was taken in, the one that was
			// wanted back was already being cleared away.
			l.mu.Lock()
			l.asked = Machine{}
			l.mu.Unlock()
		}
	}
}

// A loop is the goroutine of Run, and the work it has given out.
type loop struct {
	*Runner
	done   chan Event // how the present work ended
	cancel context.CancelFunc
	work   sync.WaitGroup
	held   held

	progress [2]uint64 // of started and coming, when they were last asked
}

// take lets step change the machine, and does what follows from it.
func (l *loop) take(ctx context.Context, step func(Machine, time.Time) (Machine, []Action)) {
	l.mu.Lock()
	before := l.machine
	now, work := step(before, time.Now())
	if before.Stage == Draining && now.Stage == Preflight { // it is wanted back
		l.coming, l.started = l.pair(before)
	}
	if before.Stage == Idle && now.Plan.Leftover {
		l.started, l.coming, l.left = l.left, l.started, nil
	}
	l.machine = now
	from, to := l.pair(now)
	l.mu.Unlock()
	if work == nil {
		return
	}
	l.halt()
	if now.Stage != Cutting && now.Stage != Proving {
		l.held.release()
	}
	if now.Stage == Idle {
		l.finish(before)
		return
	}
	if now.Stage != before.Stage {
		l.host.Moved(before, now)
	}
	if now.Stage == Draining || now.Stage == Proving && now.Plan.Same {
		l.host.Serves(to)
	}
	if len(work) > 0 {
		l.begin(ctx, executor{l, now, from, to}, work)
	}
}

// begin does the work of a stage, in a goroutine that halt ends.
func (l *loop) begin(ctx context.Context, c executor, work []Action) {
	ctx, l.cancel = c.m.bound(ctx) // halt ends it sooner, if it does not get on
	done := make(chan Event, 1)
	l.done = done
	l.work.Go(func() {
		e := Event{Kind: Passed, Stage: c.m.Stage}
		for _, a := range work {
			if err := c.do(ctx, a); err != nil {
				e.Kind, e.Why = Failed, c.m.because(err, time.Now())
				break
			}
		}
		done <- e
	})
}

// bound ends the work of the present stage when its time is over.
func (m Machine) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if m.Held.IsZero() {
		return context.WithTimeout(ctx, m.longest())
	}
	return context.WithDeadline(ctx, m.Held.Add(maxHeld))
}

// because says why an action failed: by its error, after the reason for its deadline.
func (m Machine) because(err error, now time.Time) string {
	if m.nearlyHeldTooLong(now) {
		return fmt.Sprintf("updates may be held back for %s at most: %v", maxHeld, err)
	}
	return err.Error()
}

// progressed reports whether a dataplane got on since this was last asked.
func (l *loop) progressed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var now [2]uint64
	for i, d := range []Dataplane{l.started, l.coming} {
		if d != nil {
			now[i] = d.Progress()
		}
	}
	before := l.progress
	l.progress = now
	return now != before
}

// halt ends the work under way, and waits for its end.
func (l *loop) halt() {
	if l.cancel != nil {
		l.cancel()
		l.cancel = nil
	}
	l.work.Wait()
}

// finish is the end of a swap: the one to stay is the only one.
func (l *loop) finish(last Machine) {
	l.mu.Lock()
	from, to := l.pair(last)
	l.started, l.coming = to, nil
	ended := l.machine
	l.mu.Unlock()
	if from != nil {
		from.Stop()
	}
	l.host.Finished(to, last, ended.Last)
}
