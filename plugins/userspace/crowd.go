// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"io"
	"sync"
)

// A crowd is everything that runs: each goroutine of the relay is in it, with
// what must be closed to end it.
type crowd struct {
	mu      sync.Mutex // guards all below; held for a moment only
	ctx     context.Context
	cancel  context.CancelFunc
	members map[io.Closer]struct{}
	running sync.WaitGroup
}

func newCrowd() *crowd {
	c := &crowd{members: make(map[io.Closer]struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// enter takes m in, whose goroutine is about to start, and calls leave at its
// end. It is false, and m is closed, when all are being sent home.
func (c *crowd) enter(m io.Closer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		m.Close()
		return false
	}
	c.members[m] = struct{}{}
	c.running.Add(1)
	return true
}

// leave closes m and lets it go.
func (c *crowd) leave(m io.Closer) {
	c.mu.Lock()
	delete(c.members, m)
	c.mu.Unlock()
	m.Close()
	c.running.Done()
}

// context ends when all are sent home.
func (c *crowd) context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ctx
}

// home closes all and waits until every goroutine has ended.
func (c *crowd) home() {
	c.mu.Lock()
	c.cancel()
	for m := range c.members {
		m.Close()
	}
	c.mu.Unlock()
	c.running.Wait()
}

// again lets members in after home.
func (c *crowd) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ctx, c.cancel = context.WithCancel(context.Background())
}
