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

	mu        sync.Mutex // guards what is below
	call      string     // who has it; empty: nobody
	began     time.Time
	ended     time.Time // when the call's context ended; zero: it has not
	interrupt context.CancelCauseFunc
}

func newTurn() *turn { return &turn{token: make(chan struct{}, 1)} }

// take waits for the turn. The context it returns also ends when another call
// interrupts this one.
func (t *turn) take(ctx context.Context, call string) (context.Context, func(), error) {
	select {
	case t.token <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("%s had to wait for %s: %w", call, t.describe(), context.Cause(ctx))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	t.mu.Lock()
	t.call, t.began, t.ended, t.interrupt = call, time.Now(), time.Time{}, cancel
	t.mu.Unlock()
	forget := context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.interrupt != nil && t.call == call && t.ended.IsZero() {
			t.ended = time.Now()
		}
	})
	return ctx, func() {
		forget()
		t.mu.Lock()
		t.call, t.interrupt = "", nil
		t.mu.Unlock()
		cancel(nil)
		<-t.token
	}, nil
}

// stop asks the call that has the turn to end, and says why.
func (t *turn) stop(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.interrupt != nil {
		t.interrupt(why)
	}
}

// now is the call that has the turn, how long it has run, and how long past the
// end of its context.
func (t *turn) now() (call string, ran, overdue time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.call == "" {
		return "", 0, 0
	}
	if !t.ended.IsZero() {
		overdue = time.Since(t.ended)
	}
	return t.call, time.Since(t.began), overdue
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
