// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/traffic"
)

// backend serves TCP at addr until the test ends. It answers with the address at which it was called, and then echoes.
func backend(t *testing.T, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() { // ends when l is closed
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection
				defer conn.Close()
				fmt.Fprintln(conn, conn.LocalAddr())
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
}

// ask calls once, and returns the backend that answers.
func ask(addr string) (string, error) {
	conn, from, err := connect(addr)
	if err == nil {
		_ = conn.Close()
	}
	return from, err
}

// connect calls once, and returns the connection and the backend that answers.
func connect(addr string) (net.Conn, string, error) {
	conn, err := net.DialTimeout("tcp", addr, traffic.Timeout)
	if err != nil {
		return nil, "", err
	}
	_ = conn.SetDeadline(time.Now().Add(traffic.Timeout))
	from, err := bufio.NewReader(io.LimitReader(conn, 512)).ReadString('\n')
	if err != nil {
		_ = conn.Close()
	}
	return conn, strings.TrimSpace(from), err
}

// served waits until a backend of from answers a call to addr, or any backend if from is empty.
func (s *system) served(addr string, from ...string) {
	s.t.Helper()
	s.until(addr+" is served", func() error {
		by, err := ask(addr)
		if err == nil && len(from) > 0 && !slices.Contains(from, by) {
			err = fmt.Errorf("answered by %s, want one of %q", by, from)
		}
		return err
	})
}

// newLoad starts four callers, each of which calls addr every 5 ms, and keeps connections, until the test ends.
func newLoad(t *testing.T, addr string, keep int) *traffic.Load {
	l := traffic.Start(traffic.Plan{New: 4, Every: 5 * time.Millisecond, Keep: keep}, traffic.Caller{
		Name: "a caller", To: netip.MustParseAddrPort(addr),
		Dial: func(context.Context, string, netip.AddrPort) (net.Conn, error) {
			conn, _, err := connect(addr)
			return conn, err
		},
	})
	t.Cleanup(func() { l.End() })
	return l
}

// TestEndpointIsRemoved removes an endpoint while callers call: no call fails, established connections stay, and no new
// one goes there.
func TestEndpointIsRemoved(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	backend(t, at(s.net+"102"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101", "NET.102"))
	s.start()
	addr, going := s.net+"10:18080", at(s.net+"102")
	s.served(addr, going)
	l := newLoad(t, addr, 4)
	l.More(t, 50)
	before, err := s.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.until("the change is confirmed", func() error {
		now, err := s.Status(t.Context())
		if err == nil && (now.Sync.Acked <= before.Sync.Acked || now.Sync.Pending > 0) {
			err = fmt.Errorf("sync %+v", now.Sync)
		}
		return err
	})
	for range 50 {
		if from, err := ask(addr); err != nil || from == going {
			t.Errorf("after the change was confirmed, %s answers: %v", from, err)
		}
	}
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101", "NET.102"))
	s.served(addr, going)
	l.Done(t, "an endpoint removed and added")
	s.remove("services/web.yaml")
	s.until("a Service whose file was removed is not served", func() error {
		from, err := ask(addr)
		if err == nil {
			return fmt.Errorf("answered by %s", from)
		}
		return nil
	})
}
