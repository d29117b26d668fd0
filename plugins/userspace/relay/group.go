// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"io"
	"sync"
)

// A group is everything that runs in a Relay: each goroutine is a member, by what must
// be closed to end it.
type group struct {
	mu      sync.Mutex // guards all below; held for a moment only
	ctx     context.Context
	cancel  context.CancelFunc
	members map[io.Closer]struct{}
	running sync.WaitGroup
}

// init makes a group without members, also after stop.
func (g *group) init() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.members = make(map[io.Closer]struct{})
}

// add makes m a member, whose goroutine is about to start, and calls remove at its end.
// If the group is being stopped, add closes m and returns false.
func (g *group) add(m io.Closer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		m.Close()
		return false
	}
	g.members[m] = struct{}{}
	g.running.Add(1)
	return true
}

// remove closes m, which is no member any more.
func (g *group) remove(m io.Closer) {
	g.mu.Lock()
	delete(g.members, m)
	g.mu.Unlock()
	m.Close()
	g.running.Done()
}

// context returns one that ends with stop.
func (g *group) context() context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ctx
}

// stop closes all members and waits until every goroutine has ended.
func (g *group) stop() {
	g.mu.Lock()
	g.cancel()
	for m := range g.members {
		m.Close()
	}
	g.mu.Unlock()
	g.running.Wait()
}
