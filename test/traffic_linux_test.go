// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/traffic"
)

// backend serves TCP and UDP at addr until the test ends. It answers with the address at which it was called, and then
// echoes.
func backend(t *testing.T, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close()
		_ = packets.Close()
	})
	go accept(l)
	go answer(packets, addr)
}

// accept ends when l is closed.
func accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		go func() { // ends with the connection
			defer conn.Close()
			fmt.Fprintln(conn, conn.LocalAddr())
			_, _ = io.Copy(conn, conn)
		}()
	}
}

// answer ends when conn is closed.
func answer(conn net.PacketConn, name string) {
	packet := make([]byte, 512)
	for {
		_, from, err := conn.ReadFrom(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = conn.WriteTo([]byte(name), from)
		}
	}
}

// timeout is how long a request may take.
const timeout = traffic.Timeout

// ask calls once, and returns the backend that answers.
func ask(network, addr string) (string, error) {
	conn, from, err := connect(network, addr)
	if err == nil {
		_ = conn.Close()
	}
	return from, err
}

// connect calls once, and returns the connection and the backend that answers.
func connect(network, addr string) (net.Conn, string, error) {
	conn, err := net.DialTimeout(network, addr, timeout)
	if err != nil {
		return nil, "", err
	}
	_ = conn.SetDeadline(time.Now().Add(timeout))
	from := ""
	if network == "udp" {
		packet := make([]byte, 512)
		n := 0
		if _, err = conn.Write([]byte("who?")); err == nil {
			n, err = conn.Read(packet)
		}
		from = string(packet[:n])
	} else {
		from, err = bufio.NewReader(io.LimitReader(conn, 512)).ReadString('\n')
	}
	if err != nil {
		_ = conn.Close()
		return nil, "", err
	}
	return conn, strings.TrimSpace(from), nil
}

// served waits until a backend of from answers a call to addr, or any backend if from is empty.
func (s *system) served(network, addr string, from ...string) {
	s.t.Helper()
	s.until(network+" "+addr+" is served", func() error {
		by, err := ask(network, addr)
		if err == nil && len(from) > 0 && !slices.Contains(from, by) {
			err = fmt.Errorf("answered by %s, want one of %q", by, from)
		}
		return err
	})
}

// clients are four callers, each of which calls addr every 5 ms.
type clients struct {
	*traffic.Load

	mu   sync.Mutex           // guards last
	last map[string]time.Time // when the last call was sent, by who answered it
}

// newClients starts clients, which end with the test.
func newClients(t *testing.T, addr string) *clients {
	r := &clients{last: make(map[string]time.Time)}
	r.Load = traffic.Start(traffic.Plan{New: 4, Every: 5 * time.Millisecond}, traffic.Caller{
		Name: "a caller", To: netip.MustParseAddrPort(addr),
		Dial: func(_ context.Context, network string, to netip.AddrPort) (net.Conn, error) {
			began := time.Now()
			conn, from, err := connect(network, to.String())
			if err == nil {
				r.mu.Lock()
				defer r.mu.Unlock()
				if began.After(r.last[from]) {
					r.last[from] = began
				}
			}
			return conn, err
		},
	})
	t.Cleanup(func() { r.End() })
	return r
}

// more waits until the given number of further requests has been answered.
func (r *clients) more(s *system, requests int) {
	s.t.Helper()
	want := r.Sofar().New + requests
	s.until("requests are answered", func() error {
		if n := r.Sofar().New; n < want {
			return fmt.Errorf("%d, want %d", n, want)
		}
		return nil
	})
}

// lastCall returns the time of the last request that a backend answered.
func (r *clients) lastCall(backend string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[backend]
}
