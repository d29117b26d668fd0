// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"io"
	"sync"
)

// A group has the goroutines of a Relay. Each is a member by what must be closed to end it.
type group struct {
	mu      sync.Mutex // guards the fields below
	ctx     context.Context
	cancel  context.CancelFunc
	members map[io.Closer]struct{}
	running sync.WaitGroup
}

// init makes the group ready, also after stop.
func (g *group) init() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.members = make(map[io.Closer]struct{})
}

// add adds a member before its goroutine starts. That goroutine must call remove at its end. If the group is being stopped,
// add closes the member and returns false.
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

// remove removes a member and closes it.
func (g *group) remove(m io.Closer) {
	g.mu.Lock()
	delete(g.members, m)
	g.mu.Unlock()
	m.Close()
	g.running.Done()
}

func (g *group) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.members)
}

// context returns a context that stop cancels.
func (g *group) context() context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ctx
}

// stop closes all members and waits until their goroutines have ended.
func (g *group) stop() {
	g.mu.Lock()
	g.cancel()
	for m := range g.members {
		m.Close()
	}
	g.mu.Unlock()
	g.running.Wait()
}
