// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"net"
	"sync"
	"sync/atomic"
)

// A pump carries bytes one way between two connections:
//
//	caller ── in ──▶ pump ──▶ endpoint
//	caller ◀── out ── pump ◀── endpoint
//
// The two pumps of a pair end each for itself, so that an end that has said all
// can still listen. A reset on one side becomes one on the other.
type pump struct {
	relay    *relay
	from, to *net.TCPConn
	bytes    *atomic.Uint64
	reset    *atomic.Bool // shared by the pair: one side was broken off
}

// join carries bytes both ways between conn and up until both have ended.
func (r *relay) join(conn, up *net.TCPConn) {
	var reset atomic.Bool
	in := pump{relay: r, from: conn, to: up, bytes: &r.counts.bytesIn, reset: &reset}
	out := pump{relay: r, from: up, to: conn, bytes: &r.counts.bytesOut, reset: &reset}
	var back sync.WaitGroup
	back.Go(out.run) // ends with either connection, which in.run or leave closes
	in.run()
	back.Wait()
	if reset.Load() {
		abort(conn)
		abort(up)
	}
}

// run pumps until from has said all, or one of the two is broken off.
func (p *pump) run() {
	readErr, writeErr := p.carry()
	switch {
	case readErr != nil:
		// Nobody is left to read what the other side still says.
		p.reset.Store(true)
		abort(p.to)
		abort(p.from)
	case writeErr != nil:
		// What to said before it was broken off is still to be carried back; that
		// pump will come to the break itself.
		p.reset.Store(true)
		_ = p.to.CloseRead()
	case p.reset.Load():
		abort(p.to)
	default:
		_ = p.to.CloseWrite() // its error is one of a connection that has ended
	}
}

// A buffer holds what was read once and not yet written. It is as large as the
// largest datagram.
type buffer = [1 << 16]byte

// buffers are lent to whoever has something to read, never to one who waits.
type buffers struct{ pool sync.Pool }

func (b *buffers) lend() *buffer {
	if got, ok := b.pool.Get().(*buffer); ok {
		return got
	}
	return new(buffer)
}

func (b *buffers) giveBack(buf *buffer) { b.pool.Put(buf) }
