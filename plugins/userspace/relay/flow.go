// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A flow is what one client and one endpoint send each other through a udpSocket.
type flow struct {
	socket   *udpSocket
	client   netip.AddrPort
	endpoint netip.AddrPort
	conn     *net.UDPConn // connected to the endpoint
	used     atomic.Int64 // when last, by the wall clock
}

func (f *flow) touch() { f.used.Store(time.Now().UnixNano()) }

// replies sends back what the endpoint answers, until the flow has been idle for long
// enough, was dropped, or the endpoint refuses it.
func (f *flow) replies() {
	r := f.socket.relay
	defer r.group.remove(f.conn)
	defer f.socket.end(f)
	in := newPackets(&r.buffers, f.conn)
	for {
		until := time.Unix(0, f.used.Load()+r.udpIdle.Load())
		if time.Until(until) <= 0 || f.conn.SetReadDeadline(until) != nil {
			return
		}
		buf, n, _, err := in.read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue // a datagram of the client may have prolonged the flow
		}
		if errors.Is(err, errTooLong) {
			continue // a router had to drop a datagram of that size; the endpoint refused nothing
		}
		if err != nil {
			return
		}
		f.touch()
		r.counters.bytesOut.Add(uint64(n))
		_, _ = f.socket.conn.WriteToUDPAddrPort(buf[:n], f.client) // clients of UDP cope with loss
		in.giveBack(buf)
	}
}

// A buffer holds what was read once and not yet written. It is as large as the largest
// datagram.
type buffer = [1 << 16]byte

// buffers are lent for as long as there is something to read: a socket that waits has
// none.
type buffers struct{ pool sync.Pool }

func (b *buffers) lend() *buffer {
	if got, ok := b.pool.Get().(*buffer); ok {
		return got
	}
	return new(buffer)
}

func (b *buffers) giveBack(buf *buffer) { b.pool.Put(buf) }
