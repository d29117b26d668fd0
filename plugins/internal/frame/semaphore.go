// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"sync/atomic"

	"github.com/pointsman/pointsman/sdk"
)

// A semaphore is held by a call of the host or by background work. A call that waits for it
// cancels the context of the background work.
type semaphore struct {
	held    chan struct{} // of capacity 1
	waiting atomic.Int32  // the number of calls that wait
	cancel  atomic.Pointer[context.CancelFunc]
}

func newSemaphore() *semaphore { return &semaphore{held: make(chan struct{}, 1)} }

// call acquires s for a call of the host.
func (s *semaphore) call(ctx context.Context) error {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	if cancel := s.cancel.Load(); cancel != nil {
		(*cancel)()
	}
	return s.acquire(ctx)
}

// acquire acquires s without an effect on background work.
func (s *semaphore) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *semaphore) release() { <-s.held }

// background acquires s for background work, whose context ends when a call waits. The caller
// calls done at the end.
func (s *semaphore) background(ctx context.Context) (work context.Context, done func(), err error) {
	if err := s.acquire(ctx); err != nil {
		return nil, nil, err
	}
	work, cancel := context.WithCancel(ctx)
	s.cancel.Store(&cancel)
	if s.waiting.Load() > 0 { // a call that came later finds cancel
		cancel()
	}
	return work, func() {
		s.cancel.Store(nil)
		cancel()
		s.release()
	}, nil
}

// Do calls f with the desired Services while no call of the host runs. It interrupts background
// work, as a call of the host does.
func (d *Dataplane[P]) Do(ctx context.Context, f func(map[sdk.Name]sdk.Service) error) error {
	if err := d.semaphore.call(ctx); err != nil {
		return err
	}
	defer d.semaphore.release()
	return f(d.state.Services)
}

// Beside calls f while neither a call of the host nor background work runs. It waits for
// background work, so that a host that inspects again and again does not prevent repairs.
func (d *Dataplane[P]) Beside(ctx context.Context, f func() error) error {
	if err := d.semaphore.acquire(ctx); err != nil {
		return err
	}
	defer d.semaphore.release()
	return f()
}
