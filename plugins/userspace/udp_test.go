// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A teller answers each datagram with its own name and what it heard. It ends with
// the test, or when it is closed.
func teller(t *testing.T, addr string) net.PacketConn {
	t.Helper()
	conn, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo([]byte(addr+" "+string(buf[:n])), from)
		}
	}()
	return conn
}

// A caller is a socket that is connected to addr, and so hears nobody else.
func caller(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// tells is who answers a datagram. What an endpoint refuses is said again, as
// every caller over UDP does, with a number, so that a late answer to something else
// is told apart.
func tells(t *testing.T, conn net.Conn, words string) string {
	t.Helper()
	var who string
	eventually(t, func() (err error) {
		who, err = answered(conn, fmt.Sprint(rand.Uint32(), " ", words))
		return err
	})
	return who
}

// answered says something to conn, and waits a moment for the answer to it.
func answered(conn net.Conn, words string) (who string, err error) {
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := conn.Write([]byte(words)); err != nil {
		return "", err
	}
	buf := make([]byte, 1<<16)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return "", err
		}
		who, heard, _ := strings.Cut(string(buf[:n]), " ")
		if heard == words {
			return who, nil
		}
	}
}

// TestDatagrams: a caller keeps its endpoint, callers take turns, and each hears
// from the address it spoke to, also when the datagram is as large as can be.
func TestDatagrams(t *testing.T) {
	front, a, b := at(1, 5300), at(2, 5300), at(3, 5300)
	teller(t, a)
	teller(t, b)
	onStage(t, udp(svc("dns", "cluster-ip "+front, a+" "+b)))
	seen := make(map[string]int)
	for range 6 {
		c := caller(t, front)
		who := tells(t, c, "first")
		if again := tells(t, c, strings.Repeat("x", 60000)); again != who {
			t.Errorf("one caller found %s and then %s", who, again)
		}
		seen[who]++
	}
	if seen[a] != 3 || seen[b] != 3 {
		t.Errorf("six callers found %v", seen)
	}
}

// TestDatagramsIPv6 on the one address that every machine has.
func TestDatagramsIPv6(t *testing.T) {
	var free []string
	for range 2 {
		conn, err := net.ListenPacket("udp6", "[::1]:0")
		if err != nil {
			t.Skip("needs IPv6: ", err)
		}
		free = append(free, conn.LocalAddr().String())
		conn.Close()
	}
	front, back := free[0], free[1]
	teller(t, back)
	onStage(t, udp(svc("dns", "cluster-ip "+front, back)))
	if who := tells(t, caller(t, front), "x"); who != back {
		t.Errorf("found %s", who)
	}
}

// TestFlowFollows: a flow whose endpoint has gone goes elsewhere with the next
// datagram, one whose endpoint still serves stays, and while nobody serves all do.
func TestFlowFollows(t *testing.T) {
	front, a, b := at(1, 5300), at(2, 5300), at(3, 5300)
	teller(t, a)
	teller(t, b)
	s := onStage(t, udp(svc("dns", "cluster-ip "+front, a)))
	c := caller(t, front)
	follows := func(want, when string) {
		t.Helper()
		if who := tells(t, c, "x"); who != want {
			t.Errorf("%s the caller finds %s", when, who)
		}
	}
	follows(a, "at first")
	serving := udp(svc("dns", "cluster-ip "+front, b))
	serving.Serving = addrs(strings.Split(a, ":")[0])
	s.set(serving)
	follows(a, "while its endpoint serves on")
	s.set(udp(svc("dns", "cluster-ip "+front, "")))
	s.set(udp(svc("dns", "cluster-ip "+front, a+" "+b)))
	follows(a, "after a moment without any endpoint")
	s.set(udp(svc("dns", "cluster-ip "+front, b)))
	follows(b, "when its endpoint has gone")
}

// TestFlowRefused: an endpoint that has no socket any more is left for another.
func TestFlowRefused(t *testing.T) {
	front, a, b := at(1, 5300), at(2, 5300), at(3, 5300)
	ends := map[string]net.PacketConn{a: teller(t, a), b: teller(t, b)}
	onStage(t, udp(svc("dns", "cluster-ip "+front, a+" "+b)))
	c := caller(t, front)
	first := tells(t, c, "x")
	ends[first].Close()
	if second := tells(t, c, "x"); second == first {
		t.Errorf("the caller still finds %s", first)
	}
}

// TestFlowEnds after the time that the options say, and not while it is used.
func TestFlowEnds(t *testing.T) {
	front, back := at(1, 5300), at(2, 5300)
	teller(t, back)
	s := onStage(t, udp(svc("dns", "cluster-ip "+front, back)))
	c := caller(t, front)
	tells(t, c, "x")
	if n := s.Report().Flows; n != 1 {
		t.Fatalf("%d flows are reported", n)
	}
	s.configure("50ms") // for what is begun from now on, and after a next datagram
	s.must(sdk.Update{Full: true, Node: &sdk.Node{Name: "n1"}, Set: []sdk.Service{udp(svc("dns", "cluster-ip "+front, back))}})
	eventually(t, func() error {
		tells(t, caller(t, front), "x")
		if n := s.Report().Flows; n > 2 {
			return fmt.Errorf("%d flows are reported", n)
		}
		return nil
	})
}

// TestDatagramsTurnedAway: nothing answers a caller whom the route drops, and the
// kernel itself says so where nobody serves.
func TestDatagramsTurnedAway(t *testing.T) {
	front, back := at(1, 5300), at(2, 5300)
	teller(t, back)
	dns := udp(svc("dns", "load-balancer "+front, back))
	dns.Frontends[0].Sources = append(dns.Frontends[0].Sources, sourceRange("198.18.0.0/15"))
	s := onStage(t, dns)
	c := caller(t, front)
	_, _ = c.Write([]byte("x"))
	eventually(t, func() error {
		if s.relay.counts.turnedAway.Load() == 0 {
			return errors.New("the datagram was not turned away")
		}
		return nil
	})
	s.set(udp(svc("dns", "load-balancer "+front, "")))
	eventually(t, func() error {
		_, err := c.Write([]byte("x"))
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		return fmt.Errorf("the caller sees %v", err)
	})
}

// TestDrainingFlows end by themselves, and their socket with the last.
func TestDrainingFlows(t *testing.T) {
	front, back := at(1, 5300), at(2, 5300)
	teller(t, back)
	s := onStage(t, udp(svc("dns", "cluster-ip "+front, back)))
	c := caller(t, front)
	tells(t, c, "x")
	s.role(sdk.Draining)
	if who := tells(t, c, "x"); who != back {
		t.Errorf("an established flow finds %s", who)
	}
	other := caller(t, front)
	_, _ = other.Write([]byte("x"))
	tells(t, c, "x")
	if n := s.Report().Flows; n != 1 {
		t.Errorf("%d flows are reported while draining", n)
	}
	s.role(sdk.Standby)
	if who := tells(t, c, "x"); who != back {
		t.Errorf("in Standby an established flow finds %s", who)
	}
	if n := s.Report().Flows; n != 1 {
		t.Errorf("%d flows are reported in standby", n)
	}
}
