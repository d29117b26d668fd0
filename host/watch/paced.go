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
// and so is what comes much at a time, such as lists. During a pause the kernel does not tell of
// what comes, where it can be asked not to: to be woken for it is most of what it costs.
type paced struct {
	net.Conn
	pause  func() time.Duration
	closed context.Context // ends when the connection is closed
	end    context.CancelFunc

	// What follows is Read's, which nothing calls twice at once.
	limiter flowcontrol.RateLimiter
	read    volume
	emptied bool // the last Read left nothing
}

const (
	pacedRate  = 0.25      // emptied so many times in a second is often,
	pacedBurst = 20        // but for so many at once: a handshake, and the answers to first requests
	pacedMuch  = 128 << 10 // bytes in a second are no single events
)

// pace returns c, to be read with pauses, of a length that is asked for before each; zero: none.
func pace(c net.Conn, pause func() time.Duration) *paced {
	p := &paced{Conn: c, pause: pause, limiter: flowcontrol.NewTokenBucketRateLimiter(pacedRate, pacedBurst)}
	p.closed, p.end = context.WithCancel(context.Background())
	return p
}

// Read reads what has come, perhaps a pause later.
func (p *paced) Read(b []byte) (int, error) {
	if p.emptied && !p.read.much(time.Now()) {
		if pause := p.pause(); pause > 0 && !p.limiter.TryAccept() {
			p.wait(pause)
		}
	}
	n, err := p.Conn.Read(b)
	p.read.add(time.Now(), n)
	p.emptied = n < len(b)
	return n, err
}

// wait waits for a pause, or until p is closed: then Read says so.
func (p *paced) wait(pause time.Duration) {
	tellFrom(p.Conn, pacedMuch)
	defer tellFrom(p.Conn, 1)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.closed.Done():
	}
}

// A volume is how many bytes were read of late: in the present second, and in the one before.
type volume struct {
	began       time.Time // the present one
	before, now int
}

func (v *volume) add(at time.Time, n int) {
	v.forget(at)
	v.now += n
}

func (v *volume) much(at time.Time) bool {
	v.forget(at)
	return max(v.before, v.now) >= pacedMuch
}

// forget begins another second when one is over.
func (v *volume) forget(at time.Time) {
	over := at.Sub(v.began)
	if over < time.Second {
		return
	}
	if v.before = v.now; over >= 2*time.Second {
		v.before = 0
	}
	v.began, v.now = at, 0
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
