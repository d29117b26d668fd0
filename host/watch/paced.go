// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// A pacer reads in fewer, larger steps while little comes often.
//
// A watch's events come one by one, hundreds of them in a second where a large Deployment rolls,
// and each one that is read by itself wakes several goroutines, which costs more than to decode
// it. Updates of the dataplane have a gap between them anyway. So what was emptied often of late
// pauses before it is read again; what comes after a quiet time is read at once, and so is what
// comes much at a time, such as lists.
type pacer struct {
	io.ReadCloser
	pause  func() time.Duration
	closed context.Context // ends when it is closed
	end    context.CancelFunc

	// What follows is Read's, which nothing calls twice at once.
	limiter flowcontrol.RateLimiter // once each
	each    time.Duration
	taken   int  // bytes since it was emptied before
	emptied bool // the last Read left nothing
}

const (
	pacedBurst = 20       // that often it may be emptied at once: a handshake, and the answers to first requests
	pacedMuch  = 16 << 10 // bytes at a time are no single events
)

// pace returns a pacer of r, with pauses of a length that may change at any time; zero: it is
// read as it comes.
func pace(r io.ReadCloser, pause func() time.Duration) *pacer {
	p := &pacer{ReadCloser: r, pause: pause}
	p.closed, p.end = context.WithCancel(context.Background())
	return p
}

// Read reads what has come, perhaps a pause later.
func (p *pacer) Read(b []byte) (int, error) {
	if pause := p.pause(); p.emptied && pause > 0 {
		if p.taken < pacedMuch {
			if p.each != pause {
				p.each, p.limiter = pause, flowcontrol.NewTokenBucketRateLimiter(float32(1/pause.Seconds()), pacedBurst)
			}
			_ = p.limiter.Wait(p.closed) // it fails if p is closed: Read says so
		}
		p.taken = 0
	}
	n, err := p.ReadCloser.Read(b)
	p.taken += n
	p.emptied = n < len(b)
	return n, err
}

// Close also ends a pause.
func (p *pacer) Close() error {
	p.end()
	return p.ReadCloser.Close()
}

// A pacedConn is a connection that is read by a pacer.
type pacedConn struct {
	net.Conn
	pacer *pacer
}

func (c pacedConn) Read(b []byte) (int, error) { return c.pacer.Read(b) }
func (c pacedConn) Close() error               { return c.pacer.Close() }

// pacedDial dials connections that are paced.
func pacedDial(pause func() time.Duration) func(context.Context, string, string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second} // as client-go has it
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return pacedConn{c, pace(c, pause)}, nil
	}
}

// A pacedTripper has what a watch is told be read by a pacer. The goroutine that reads the
// connection hands over one event after the other, and would wake the one that decodes them for each.
type pacedTripper struct {
	next  http.RoundTripper
	pause func() time.Duration
}

func (t pacedTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if err != nil || r.URL.Query().Get("watch") == "" {
		return answer, err
	}
	body := pace(answer.Body, t.pause)
	// Without a buffer only as much is asked for as an event is long, and nothing shows whether that was all.
	answer.Body = struct {
		io.Reader
		io.Closer
	}{bufio.NewReaderSize(body, pacedMuch), body}
	return answer, nil
}
