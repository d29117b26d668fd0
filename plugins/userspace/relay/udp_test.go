// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/relaytest"
)

// TestDatagrams: a caller keeps its endpoint, callers take turns, and each hears
// from the address it spoke to, also when the datagram is as large as can be.
func TestDatagrams(t *testing.T) {
	front, a, b := at(1, 5300), at(2, 5300), at(3, 5300)
	relaytest.UDPEndpoint(t, a)
	relaytest.UDPEndpoint(t, b)
	serve(t, udp(svc("dns", "cluster-ip "+front, a+" "+b)))
	seen := make(map[string]int)
	for range 6 {
		c := relaytest.UDPClient(t, front)
		name := relaytest.AskUDP(t, c, "first")
		if again := relaytest.AskUDP(t, c, strings.Repeat("x", 60000)); again != name {
			t.Errorf("one caller found %s and then %s", name, again)
		}
		seen[name]++
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
	relaytest.UDPEndpoint(t, back)
	serve(t, udp(svc("dns", "cluster-ip "+front, back)))
	if name := relaytest.AskUDP(t, relaytest.UDPClient(t, front), "x"); name != back {
		t.Errorf("found %s", name)
	}
}

// TestFlowFollows: a flow whose endpoint has gone goes elsewhere with the next
// datagram, one whose endpoint still serves stays, and while none serves all do.
func TestFlowFollows(t *testing.T) {
	front, a, b := at(1, 5300), at(2, 5300), at(3, 5300)
	relaytest.UDPEndpoint(t, a)
	relaytest.UDPEndpoint(t, b)
	s := serve(t, udp(svc("dns", "cluster-ip "+front, a)))
	c := relaytest.UDPClient(t, front)
	follows := func(want, when string) {
		t.Helper()
		if name := relaytest.AskUDP(t, c, "x"); name != want {
			t.Errorf("%s the caller finds %s", when, name)
		}
	}
	follows(a, "at first")
	serving := udp(svc("dns", "cluster-ip "+front, b))
	serving.Serving = []netip.Addr{hostOf(a)}
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
	ends := map[string]net.PacketConn{a: relaytest.UDPEndpoint(t, a), b: relaytest.UDPEndpoint(t, b)}
	serve(t, udp(svc("dns", "cluster-ip "+front, a+" "+b)))
	c := relaytest.UDPClient(t, front)
	first := relaytest.AskUDP(t, c, "x")
	ends[first].Close()
	if second := relaytest.AskUDP(t, c, "x"); second == first {
		t.Errorf("the caller still finds %s", first)
	}
}

// TestFlowEnds after the time that the options say, and not while it is used.
func TestFlowEnds(t *testing.T) {
	front, back := at(1, 5300), at(2, 5300)
	relaytest.UDPEndpoint(t, back)
	s := serve(t, udp(svc("dns", "cluster-ip "+front, back)))
	c := relaytest.UDPClient(t, front)
	relaytest.AskUDP(t, c, "x")
	s.carries(1)
	s.SetUDPIdle(50 * time.Millisecond) // for what is begun from now on, and after a next datagram
	eventually(t, func() error {
		relaytest.AskUDP(t, relaytest.UDPClient(t, front), "x")
		if n := s.Counters.Open(); n > 2 {
			return fmt.Errorf("%d flows are reported", n)
		}
		return nil
	})
}

// TestDatagramsTurnedAway: nothing answers a caller that the route drops, and the
// kernel itself says so where no endpoint serves.
func TestDatagramsTurnedAway(t *testing.T) {
	front, back := at(1, 5300), at(2, 5300)
	relaytest.UDPEndpoint(t, back)
	dns := udp(svc("dns", "load-balancer "+front, back))
	dns.Frontends[0].Sources = append(dns.Frontends[0].Sources, sourceRange("198.18.0.0/15"))
	s := serve(t, dns)
	c := relaytest.UDPClient(t, front)
	_, _ = c.Write([]byte("x"))
	eventually(t, func() error {
		if s.Counters.TurnedAway.Load() == 0 {
			return errors.New("the datagram was not turned away")
		}
		return nil
	})
}

// TestDrainingFlows end by themselves, and their socket with the last. Until then it can
// serve again. A datagram that waited in the socket when draining began is forwarded.
func TestDrainingFlows(t *testing.T) {
	front, back := at(1, 5300), at(2, 5300)
	relaytest.UDPEndpoint(t, back)
	s := serve(t, udp(svc("dns", "cluster-ip "+front, back)))
	socket := s.sockets[listen{sdk.UDP, addrPortOf(front)}]
	c := relaytest.UDPClient(t, front)
	keeps := func(when string) {
		t.Helper()
		if got := relaytest.AskUDP(t, c, "x"); got != back {
			t.Errorf("%s an established flow finds %s", when, got)
		}
	}
	drained := func() {
		eventually(t, func() error {
			udp := socket.(*udpSocket)
			udp.mu.Lock()
			defer udp.mu.Unlock()
			if !udp.draining && !udp.closed {
				return errors.New("the socket begins flows still")
			}
			return nil
		})
	}
	keeps("at first")
	queued := relaytest.UDPClient(t, front)
	_, _ = queued.Write([]byte("x"))
	if !socket.Drain() {
		t.Error("drained, the socket did not stay for its flow")
	}
	s.carries(2)
	drained()
	keeps("drained")
	other := relaytest.UDPClient(t, front)
	_, _ = other.Write([]byte("x"))
	keeps("beside a new client")
	s.carries(2)
	if !socket.Resume() {
		t.Fatal("the socket was closed under its flow")
	}
	relaytest.AskUDP(t, other, "x")
	s.carries(3)
	s.SetUDPIdle(time.Millisecond)
	socket.Drain()
	for _, client := range []net.Conn{c, queued, other} { // a flow sees the new time with its next datagram
		_, _ = client.Write([]byte("x"))
	}
	s.carries(0)
	drained()
	if socket.Drain() || socket.Resume() {
		t.Error("the socket outlives its last flow")
	}
}
