// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/eventually"
)

// TestShares: half of the descriptors, and at least 64, are for all else, unless there are
// fewer.
func TestShares(t *testing.T) {
	for _, c := range []struct{ descriptors, conns, listeners int }{
		{20, 8, 8}, {64, 8, 8}, {80, 8, 8}, {128, 16, 48}, {256, 32, 96}, {1024, 128, 384}, {1 << 20, 1024, 1<<19 - 1024},
	} {
		p := NewPool(c.descriptors)
		if p.conns != c.conns || p.listeners != c.listeners {
			t.Errorf("of %d: %d connections and %d listeners, want %d and %d", c.descriptors, p.conns, p.listeners, c.conns, c.listeners)
		}
	}
}

// serve serves from p until the test ends, and returns the address.
func serve(t *testing.T, p *Pool, h http.HandlerFunc) string {
	t.Helper()
	l, err := p.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	p.Bound(s)
	ended := make(chan struct{})
	go func() { // ends with the server
		defer close(ended)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() { s.Close(); <-ended })
	return l.Addr().String()
}

// hello is what a server says over c.
func hello(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s", answer.Status)
	}
	return err
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestFlood has many connect and say nothing: what asks is answered, and no more are
// held than may be.
func TestFlood(t *testing.T) {
	p := NewPool(128)
	one, other := serve(t, p, func(http.ResponseWriter, *http.Request) {}), serve(t, p, func(http.ResponseWriter, *http.Request) {})
	kept := dial(t, other)
	if err := hello(kept); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		dial(t, one)
	}
	for range 20 {
		if err := hello(dial(t, one)); err != nil {
			t.Errorf("in a flood: %v", err)
		}
	}
	if err := hello(kept); err != nil {
		t.Errorf("a connection to a server without a flood: %v", err)
	}
	for range 200 {
		dial(t, other)
	}
	if err := hello(dial(t, one)); err != nil {
		t.Errorf("in two floods: %v", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for s, n := range p.of {
		if n > p.conns/2 {
			t.Errorf("server %p has %d connections, of at most %d", s, n, p.conns/2)
		}
	}
	if n := p.recent.Len(); n > p.conns || n != len(p.open) {
		t.Errorf("%d connections, %d known, of at most %d", n, len(p.open), p.conns)
	}
}

// TestGivenBack: what ends is not counted.
func TestGivenBack(t *testing.T) {
	p := NewPool(128)
	addr := serve(t, p, func(http.ResponseWriter, *http.Request) {})
	for range 5 {
		c := dial(t, addr)
		if err := hello(c); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	eventually.Succeeds(t, "nothing is counted any more", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if left := p.recent.Len() + len(p.open) + len(p.of); left > 0 {
			return fmt.Errorf("%d are left", left)
		}
		return nil
	})
}

// TestListeners may take their share, and no more.
func TestListeners(t *testing.T) {
	p := NewPool(20)
	var all []net.Listener
	for range p.listeners {
		l, err := p.Listen(t.Context(), "tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		all = append(all, l)
	}
	if _, err := p.Listen(t.Context(), "tcp4", "127.0.0.1:0"); err == nil || !strings.Contains(err.Error(), "RLIMIT_NOFILE") {
		t.Errorf("one too many: %v", err)
	}
	all[0].Close()
	all[0].Close()
	l, err := p.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("once one is given back: %v", err)
	}
	l.Close()
}
