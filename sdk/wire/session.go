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

// A session is what Serve knows about its current host. Only the call that holds the semaphore
// writes it; Report may read it at any time.
type session struct {
	mu         sync.Mutex // guards the fields below
	id         string     // empty before the first session
	configured bool       // Configure succeeded
	begun      bool       // its first Full was acknowledged
	revision   uint64     // last acknowledged revision
	role       sdk.Role   // of the process; kept across sessions

	host *connection // of the host that began the session; nil if its end cannot be observed
	gone time.Time   // when that connection ended; zero if it has not
}

// begin starts a new session. Calls of older sessions are refused from then on.
func (s *session) begin(id string, host *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.configured, s.begun, s.revision = id, false, false, 0
	s.host, s.gone = host, time.Time{}
}

// disconnected records that c ended. Connections other than the host's, such as that of a
// container's probe, do not matter.
func (s *session) disconnected(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.host == c {
		s.gone = time.Now()
	}
}

// hostGone returns how long the host of the session has been disconnected; zero while it is
// connected.
func (s *session) hostGone() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone.IsZero() {
		return 0
	}
	return max(time.Since(s.gone), 1)
}

// update runs set, which may change fields.
func (s *session) update(set func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set()
}

// admit checks that a call belongs to the current session.
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

// admitAny is like admit, but accepts any call if no session has begun.
func (s *session) admitAny(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id != "" && s.id != id {
		return ErrFenced
	}
	return nil
}

// follows checks that u leads from the last acknowledged revision.
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

func (s *session) now() (revision uint64, role sdk.Role) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, s.role
}

// A semaphore allows one call of the dataplane at a time. A call holds it until the dataplane
// has returned, even if the caller has stopped waiting.
type semaphore struct {
	token chan struct{} // full while held

	mu   sync.Mutex // guards the field below
	call *call      // the call that holds it; nil if none
}

// A call is a call that holds, or held, the semaphore.
type call struct {
	name      string
	began     time.Time
	ended     time.Time // when its context ended; zero if it has not
	interrupt context.CancelCauseFunc
}

func newSemaphore() *semaphore { return &semaphore{token: make(chan struct{}, 1)} }

// acquire waits for the semaphore. It returns a context that also ends when another call
// interrupts this one, and a function that releases the semaphore.
func (s *semaphore) acquire(ctx context.Context, name string) (context.Context, func(), error) {
	select {
	case s.token <- struct{}{}:
	case <-ctx.Done():
		before, ran, _ := s.current()
		return nil, nil, fmt.Errorf("%s had to wait for %s, which has run for %s: %w", name, before, ran.Round(time.Millisecond), context.Cause(ctx))
	}
	if err := context.Cause(ctx); err != nil {
		// If both cases are ready, select picks either. A call whose caller has given up must
		// not begin, because a later call of the same caller may have run first.
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

// interrupt cancels the current call with a reason.
func (s *semaphore) interrupt(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.call != nil {
		s.call.interrupt(why)
	}
}

// current returns the current call, how long it has run, and how long it has continued after
// the end of its context.
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
