// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// A stage is an active relay with its session, on addresses of 127.0.0.0/8 that
// this process has for itself.
type stage struct {
	*testing.T
	*Dataplane
	rev uint64
}

// onStage is a stage on which the relay serves services.
func onStage(t *testing.T, services ...sdk.Service) *stage {
	t.Helper()
	return raise(t, New(t.TempDir()), services)
}

// onPlainStage is one whose relay carries TCP as it does where there is no better
// way.
func onPlainStage(t *testing.T, services ...sdk.Service) *stage {
	t.Helper()
	d := New(t.TempDir())
	d.relay.listen = d.relay.listenPlain
	return raise(t, d, services)
}

// onBothStages runs a test on either.
func onBothStages(t *testing.T, test func(*testing.T, func(*testing.T, ...sdk.Service) *stage)) {
	t.Run("best", func(t *testing.T) { test(t, onStage) })
	t.Run("plain", func(t *testing.T) { test(t, onPlainStage) })
}

func raise(t *testing.T, d *Dataplane, services []sdk.Service) *stage {
	t.Helper()
	needsLoopback(t)
	s := &stage{T: t, Dataplane: d}
	t.Cleanup(func() { s.Close() })
	s.configure("1m")
	s.must(sdk.Update{Full: true, Node: &sdk.Node{Name: "n1"}, Set: services})
	s.role(sdk.Active)
	return s
}

// configure begins a session without rules, in which UDP flows may be idle for so
// long.
func (s *stage) configure(idle string) {
	s.Helper()
	s.rev = 0
	options := fmt.Appendf(nil, `{"redirect": "never", "udpIdleTimeout": %q}`, idle)
	if _, err := s.Configure(s.Context(), sdk.Setup{Options: options}); err != nil {
		s.Fatal(err)
	}
}

func (s *stage) role(r sdk.Role) {
	s.Helper()
	if err := s.SetRole(s.T.Context(), r); err != nil {
		s.Fatal(err)
	}
}

// offer sends u as the next update.
func (s *stage) offer(u sdk.Update) sdk.Result {
	s.Helper()
	u.From, u.To = s.rev, s.rev+1
	if u.Full {
		u.From = 0
	}
	for i := range u.Set {
		u.Set[i].Normalize()
	}
	r, err := s.Sync(s.T.Context(), u)
	if err != nil {
		s.Fatalf("sync: %v", err)
	}
	s.rev = u.To
	return r
}

// must is offer, of what must go in whole.
func (s *stage) must(u sdk.Update) {
	s.Helper()
	if r := s.offer(u); len(r.Failed) > 0 {
		s.Fatalf("failed: %s: %v", r.Failed[0].Name, r.Failed[0].Err)
	}
}

func (s *stage) set(services ...sdk.Service) {
	s.Helper()
	s.must(sdk.Update{Set: services})
}

// Context is the test's.
func (s *stage) Context() context.Context { return s.T.Context() }

// at is the n-th address of this process, with a port.
func at(n int, port uint16) string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d:%d", 100+pid>>8&63, pid&255, n, port)
}

// A speaker answers as an endpoint: one line, its name, and then ends, unless a
// test has something better for it to do.
func speaker(t *testing.T, addr string, serve func(*net.TCPConn)) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if serve == nil {
		serve = func(c *net.TCPConn) { fmt.Fprintln(c, addr) }
	}
	go func() { // ends when l is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with serve
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				serve(c.(*net.TCPConn))
			}()
		}
	}()
}

// echo says back what it hears, until the caller has said all.
func echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }

func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

// ask is the first line that whoever serves addr says.
func ask(addr string) (string, error) {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

// finds fails the test unless the callers of addr find exactly these endpoints.
func finds(t *testing.T, addr string, endpoints ...string) {
	t.Helper()
	seen := make(map[string]bool)
	for range 4 * len(endpoints) {
		got, err := ask(addr)
		if err != nil {
			t.Fatalf("ask %s: %v", addr, err)
		}
		seen[got] = true
	}
	for _, ep := range endpoints {
		if !seen[ep] {
			t.Errorf("callers of %s never find %s", addr, ep)
		}
		delete(seen, ep)
	}
	if len(seen) > 0 {
		t.Errorf("callers of %s also find %v", addr, seen)
	}
}

// eventually waits until f is nil.
func eventually(t testing.TB, f func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s still: %v", patience, err)
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
}

// told is what Inspect tells, a frontend a line.
func (s *stage) told() []string {
	s.Helper()
	var lines []string
	err := s.Inspect(s.Context(), func(v sdk.Served) error {
		lines = append(lines, fmt.Sprintf("%s %s = %v", v.Name, v.Frontend, v.Endpoints))
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return lines
}

func addrPortOf(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }
