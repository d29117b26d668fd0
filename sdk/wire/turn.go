// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A turn is the right to call the dataplane. One call has it at a time, and gives
// it back when the dataplane has returned, not when its caller stopped waiting.
type turn struct {
	token chan struct{} // full: taken

	mu   sync.Mutex // guards what is below
	call *call      // who has it; nil: nobody
}

// A call is one that has, or had, the turn.
type call struct {
	name      string
	began     time.Time
	ended     time.Time // when its context ended; zero: it has not
	interrupt context.CancelCauseFunc
}

func newTurn() *turn { return &turn{token: make(chan struct{}, 1)} }

// take waits for the turn. The context it returns also ends when another call
// interrupts this one.
func (t *turn) take(ctx context.Context, name string) (context.Context, func(), error) {
	select {
	case t.token <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("%s had to wait for %s: %w", name, t.describe(), context.Cause(ctx))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	c := &call{name: name, began: time.Now(), interrupt: cancel}
	t.set(c)
	forget := context.AfterFunc(ctx, func() { t.end(c) })
	return ctx, func() {
		forget()
		t.set(nil)
		cancel(nil)
		<-t.token
	}, nil
}

func (t *turn) set(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.call = c
}

func (t *turn) end(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.ended = time.Now()
}

// stop asks the call that has the turn to end, and says why.
func (t *turn) stop(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.call != nil {
		t.call.interrupt(why)
	}
}

// now is the call that has the turn, how long it has run, and how long past the
// end of its context.
func (t *turn) now() (name string, ran, overdue time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.call == nil {
		return "", 0, 0
	}
	if !t.call.ended.IsZero() {
		overdue = time.Since(t.call.ended)
	}
	return t.call.name, time.Since(t.call.began), overdue
}

func (t *turn) describe() string {
	call, ran, overdue := t.now()
	switch {
	case call == "":
		return "another call"
	case overdue > time.Second:
		return fmt.Sprintf("%s, which hangs: it runs on %s after it was to end", call, overdue.Round(time.Millisecond))
	}
	return fmt.Sprintf("%s, which has run for %s", call, ran.Round(time.Millisecond))
}
