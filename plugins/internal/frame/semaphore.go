// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"sync"

	"github.com/pointsman/pointsman/sdk"
)

// A semaphore is held by a call of the host, or by what is done between calls. A call that
// waits for it ends the context of what is done between calls.
type semaphore struct {
	held chan struct{}

	mu      sync.Mutex // guards what follows
	calls   int        // that wait
	between context.CancelFunc
}

func newSemaphore() *semaphore { return &semaphore{held: make(chan struct{}, 1)} }

// call takes it for a call of the host.
func (s *semaphore) call(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.waits(1)
	defer s.waits(-1)
	return s.take(ctx)
}

func (s *semaphore) take(ctx context.Context) error {
	select {
	case s.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// done gives it back after a call.
func (s *semaphore) done() { <-s.held }

// idle takes it for what is done between calls. Work ends when a call waits.
func (s *semaphore) idle(ctx context.Context) (work context.Context, done func(), err error) {
	if err := s.take(ctx); err != nil {
		return nil, nil, err
	}
	work, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls > 0 {
		cancel()
	}
	s.between = cancel
	return work, func() { s.idled(cancel) }, nil
}

func (s *semaphore) idled(cancel context.CancelFunc) {
	cancel()
	s.mu.Lock()
	s.between = nil
	s.mu.Unlock()
	<-s.held
}

// waits notes that a call begins or ends to wait.
func (s *semaphore) waits(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls += n
	if n > 0 && s.between != nil {
		s.between()
	}
}

// Do calls f when no call of the host is at work, with the Services that are desired.
func (d *Dataplane[P]) Do(ctx context.Context, f func(map[sdk.Name]sdk.Service) error) error {
	if err := d.semaphore.call(ctx); err != nil {
		return err
	}
	defer d.semaphore.done()
	return f(d.state.Services)
}

// Beside calls f when nothing else is at work. Unlike a call it waits also for what is done
// between calls, so that a host that inspects again and again keeps no repair from its end.
func (d *Dataplane[P]) Beside(ctx context.Context, f func() error) error {
	if err := d.semaphore.take(ctx); err != nil {
		return err
	}
	defer d.semaphore.done()
	return f()
}
