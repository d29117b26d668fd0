// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/stats"
)

// A presence knows whether a host is connected, and calls gone when none has
// been for too long.
type presence struct {
	timeout func() time.Duration // as things are now; zero: none
	gone    func()

	mu    sync.Mutex // guards what is below
	hosts int
	timer *time.Timer // runs while there is no host
}

// newPresence begins without a host: one that ends between the launch and its
// first call never connects.
func newPresence(timeout func() time.Duration, gone func()) *presence {
	p := &presence{timeout: timeout, gone: gone}
	p.wait()
	return p
}

func (p *presence) connected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hosts++
	if p.timer != nil {
		p.timer.Stop()
	}
}

func (p *presence) disconnected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hosts--; p.hosts == 0 {
		p.wait()
	}
}

// wait begins to wait for a host. The lock is held.
func (p *presence) wait() {
	if timeout := p.timeout(); timeout > 0 {
		p.timer = time.AfterFunc(timeout, func() { p.expire(timeout) })
	}
}

// expire ends the waiting, unless the timeout is another one by now: a call that gave the
// process its role may have ended after its host did.
func (p *presence) expire(waited time.Duration) {
	p.mu.Lock()
	alone := p.hosts == 0
	changed := p.timeout() != waited
	if alone && changed {
		p.wait()
	}
	p.mu.Unlock()
	if alone && !changed {
		p.gone()
	}
}

// connections is how gRPC tells of connections. The first one also means that
// go-plugin has done all it does with stdout and stderr.
type connections struct {
	first    func()
	once     sync.Once
	presence *presence
}

func (c *connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	c.once.Do(c.first)
	return ctx
}

func (c *connections) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		c.presence.connected()
	case *stats.ConnEnd:
		c.presence.disconnected()
	}
}

func (c *connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (c *connections) HandleRPC(context.Context, stats.RPCStats)                       {}
