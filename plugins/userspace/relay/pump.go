// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// A pump moves bytes one way between two connections:
//
//	client ── in ──▶ pump ──▶ endpoint
//	client ◀── out ── pump ◀── endpoint
//
// The two pumps of a connection end each for itself, so that an end that has closed its
// side can still receive (half-close). A reset on one side becomes one on the other.
type pump struct {
	from, to *net.TCPConn
	bytes    *atomic.Uint64
	reset    *atomic.Bool // shared by both pumps: one side was reset
}

// join moves bytes both ways between client and endpoint until both have ended.
func (r *Relay) join(client, endpoint *net.TCPConn) {
	var reset atomic.Bool
	in := pump{from: client, to: endpoint, bytes: &r.counters.bytesIn, reset: &reset}
	out := pump{from: endpoint, to: client, bytes: &r.counters.bytesOut, reset: &reset}
	var back sync.WaitGroup
	back.Go(out.run) // ends with either connection, which in.run or the group closes
	in.run()
	back.Wait()
	if reset.Load() {
		abort(client)
		abort(endpoint)
	}
}

// run moves bytes until from has closed its side, or one of the two is reset.
func (p *pump) run() {
	readErr, writeErr := p.copy()
	switch {
	case readErr != nil:
		// from is gone, so nothing that to still sends can be delivered.
		p.reset.Store(true)
		abort(p.to)
		abort(p.from)
	case writeErr != nil:
		// What to sent before it was reset is still to be delivered; the other pump
		// does that, and then comes to the reset itself.
		p.reset.Store(true)
		_ = p.to.CloseRead()
	case p.reset.Load():
		abort(p.to)
	default:
		_ = p.to.CloseWrite() // its error is one of a connection that has ended
	}
}

// copy moves bytes until from has closed its side (no error), from fails, or to does.
func (p *pump) copy() (readErr, writeErr error) {
	buf := make([]byte, 16<<10)
	for {
		n, err := p.from.Read(buf)
		if n > 0 {
			if _, err := p.to.Write(buf[:n]); err != nil {
				return nil, err
			}
			p.bytes.Add(uint64(n))
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil, nil
		case err != nil:
			return fmt.Errorf("read: %w", err), nil
		}
	}
}

// abort ends conn with a reset.
func abort(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // of a connection that is broken already: then it needs no reset
	conn.Close()
}
