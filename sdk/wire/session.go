// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A session is what Serve knows of the host it works for. It is written only by
// the call that holds the semaphore, and read by Report at any time.
type session struct {
	mu         sync.Mutex // guards what is below
	id         string     // empty: none has begun
	configured bool       // Configure succeeded
	begun      bool       // its first Full was acknowledged
	revision   uint64     // the last one acknowledged
	role       sdk.Role   // of the process: it outlives sessions

	host *connection // of the host that began it; nil: it cannot be seen to end
	gone time.Time   // when that connection ended; zero: it has not
}

// begin ends every older session: its calls are refused from here on.
func (s *session) begin(id string, host *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.configured, s.begun, s.revision = id, false, false, 0
	s.host, s.gone = host, time.Time{}
}

// disconnected notes that c ended. Other connections than the host's, such as that of a container's probe,
// do not matter.
func (s *session) disconnected(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.host == c {
		s.gone = time.Now()
	}
}

// hostGone returns how long the host of the session has been disconnected; zero: it is connected.
func (s *session) hostGone() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone.IsZero() {
		return 0
	}
	return max(time.Since(s.gone), 1)
}

func (s *session) confirm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.configured = true
}

// admit checks that a call is of the present session.
func (s *session) admit(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.id == "":
		return errors.New("no session: Configure comes first")
	case s.id != id:
		return ErrFenced
	case !s.configured:
		return errors.New("the session is not configured: Configure failed")
	}
	return nil
}

// admitAny is admit for calls that need no session where none has begun.
func (s *session) admitAny(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id != "" && s.id != id {
		return ErrFenced
	}
	return nil
}

// follows checks that u leads on from what was acknowledged.
func (s *session) follows(u sdk.Update) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case u.Full:
		return nil
	case !s.begun:
		return fmt.Errorf("the session has not had a full update: %w", sdk.ErrResync)
	case u.From != s.revision:
		return fmt.Errorf("update leads from revision %d, the last one acknowledged is %d: %w", u.From, s.revision, sdk.ErrResync)
	}
	return nil
}

func (s *session) acknowledge(revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun, s.revision = true, revision
}

func (s *session) setRole(role sdk.Role) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.role = role
}

func (s *session) now() (revision uint64, role sdk.Role) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, s.role
}

// A semaphore lets one call at a time reach the dataplane. A call holds it until the
// dataplane has returned, also when the caller has stopped waiting.
type semaphore struct {
	token chan struct{} // full: held

	mu   sync.Mutex // guards what is below
	call *call      // the one that holds it; nil: none
}

// A call is one that holds, or held, the semaphore.
type call struct {
	name      string
	began     time.Time
	ended     time.Time // when its context ended; zero: it has not
	interrupt context.CancelCauseFunc
}

func newSemaphore() *semaphore { return &semaphore{token: make(chan struct{}, 1)} }

// acquire waits for the semaphore. The context it returns also ends when another call
// interrupts this one; the function it returns releases the semaphore.
func (s *semaphore) acquire(ctx context.Context, name string) (context.Context, func(), error) {
	select {
	case s.token <- struct{}{}:
	case <-ctx.Done():
		before, ran, _ := s.current()
		return nil, nil, fmt.Errorf("%s had to wait for %s, which has run for %s: %w", name, before, ran.Round(time.Millisecond), context.Cause(ctx))
	}
	if err := context.Cause(ctx); err != nil {
		// Where both could go on, select takes either. A call that its caller has given up must
		// not begin: what the caller sent since may have come first.
		<-s.token
		return nil, nil, fmt.Errorf("%s had ended before it began: %w", name, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	c := &call{name: name, began: time.Now(), interrupt: cancel}
	s.set(c)
	forget := context.AfterFunc(ctx, func() { s.end(c) })
	return ctx, func() {
		forget()
		s.set(nil)
		cancel(nil)
		<-s.token
	}, nil
}

func (s *semaphore) set(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.call = c
}

func (s *semaphore) end(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.ended = time.Now()
}

// interrupt ends the context of the present call, and says why.
func (s *semaphore) interrupt(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.call != nil {
		s.call.interrupt(why)
	}
}

// current returns the present call, how long it has run, and how long past the end of its
// context.
func (s *semaphore) current() (name string, ran, overdue time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.call == nil {
		return "", 0, 0
	}
	if !s.call.ended.IsZero() {
		overdue = time.Since(s.call.ended)
	}
	return s.call.name, time.Since(s.call.began), overdue
}
