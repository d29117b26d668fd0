// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"net"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// A paced is a connection that is read in fewer, larger steps while little comes often.
//
// A watch's events come one by one, hundreds of them in a second where a large Deployment rolls,
// and each one that is read by itself wakes several goroutines, which costs more than to decode
// it. Updates of the dataplane have a gap between them anyway. So a connection that was emptied
// often of late pauses before it is read again; what comes after a quiet time is read at once,
// and so is what comes much at a time, such as lists.
type paced struct {
	net.Conn
	pause  func() time.Duration
	closed context.Context // ends when the connection is closed
	end    context.CancelFunc

	// What follows is Read's, which nothing calls twice at once.
	limiter flowcontrol.RateLimiter // once each
	each    time.Duration
	taken   int  // bytes since it was emptied before
	emptied bool // the last Read left nothing
}

const (
	pacedBurst = 20       // that often it may be emptied at once: a handshake, and the answers to first requests
	pacedMuch  = 32 << 10 // bytes at a time are no single events
)

// pace returns c, to be read with pauses of a length that may change at any time; zero: it is
// read as it comes.
func pace(c net.Conn, pause func() time.Duration) *paced {
	p := &paced{Conn: c, pause: pause}
	p.closed, p.end = context.WithCancel(context.Background())
	return p
}

// Read reads what has come, perhaps a pause later.
func (p *paced) Read(b []byte) (int, error) {
	if pause := p.pause(); p.emptied && pause > 0 {
		if p.taken < pacedMuch {
			if p.each != pause {
				p.each, p.limiter = pause, flowcontrol.NewTokenBucketRateLimiter(float32(1/pause.Seconds()), pacedBurst)
			}
			_ = p.limiter.Wait(p.closed) // it fails if p is closed: Read says so
		}
		p.taken = 0
	}
	n, err := p.Conn.Read(b)
	p.taken += n
	p.emptied = n < len(b)
	return n, err
}

// Close also ends a pause.
func (p *paced) Close() error {
	p.end()
	return p.Conn.Close()
}

// pacedDial dials connections that are paced.
func pacedDial(pause func() time.Duration) func(context.Context, string, string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second} // as client-go has it
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return pace(c, pause), nil
	}
}
