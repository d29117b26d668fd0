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

// A client keeps its endpoint, and the endpoints of clients alternate. Replies come from the address to which a client sent,
// also for very long datagrams.
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
			t.Errorf("the endpoint of a client is %s and then %s", name, again)
		}
		seen[name]++
	}
	if seen[a] != 3 || seen[b] != 3 {
		t.Errorf("the endpoints of six clients are %v", seen)
	}
}

// A flow moves to another endpoint if its endpoint no longer serves. It stays while its endpoint serves without being ready, or
// while the Service has no endpoint.
func TestFlowFollowsEndpoints(t *testing.T) {
	front, a, b := at(1, 5300), at(2, 5300), at(3, 5300)
	relaytest.UDPEndpoint(t, a)
	relaytest.UDPEndpoint(t, b)
	s := serve(t, udp(svc("dns", "cluster-ip "+front, a)))
	c := relaytest.UDPClient(t, front)
	follows := func(want, when string) {
		t.Helper()
		if name := relaytest.AskUDP(t, c, "x"); name != want {
			t.Errorf("%s the endpoint is %s", when, name)
		}
	}
	follows(a, "at first")
	serving := udp(svc("dns", "cluster-ip "+front, b))
	serving.Serving = []netip.Addr{hostOf(a)}
	s.set(serving)
	follows(a, "while its endpoint still serves")
	s.set(udp(svc("dns", "cluster-ip "+front, "")))
	s.set(udp(svc("dns", "cluster-ip "+front, a+" "+b)))
	follows(a, "after a moment without an endpoint")
	s.set(udp(svc("dns", "cluster-ip "+front, b)))
	follows(b, "without its endpoint")
}

// If an endpoint has closed its socket, the flow moves to another one.
func TestFlowRefused(t *testing.T) {
	front, a, b := at(1, 5300), at(2, 5300), at(3, 5300)
	ends := map[string]net.PacketConn{a: relaytest.UDPEndpoint(t, a), b: relaytest.UDPEndpoint(t, b)}
	serve(t, udp(svc("dns", "cluster-ip "+front, a+" "+b)))
	c := relaytest.UDPClient(t, front)
	first := relaytest.AskUDP(t, c, "x")
	ends[first].Close()
	if second := relaytest.AskUDP(t, c, "x"); second == first {
		t.Errorf("the endpoint is still %s", first)
	}
}

// A flow ends after UDPIdle without a datagram, and not while it is used.
func TestFlowEnds(t *testing.T) {
	front, back := at(1, 5300), at(2, 5300)
	relaytest.UDPEndpoint(t, back)
	s := serve(t, udp(svc("dns", "cluster-ip "+front, back)))
	c := relaytest.UDPClient(t, front)
	relaytest.AskUDP(t, c, "x")
	s.carries(1)
	s.SetUDPIdle(50 * time.Millisecond) // takes effect for new flows
	eventually(t, func() error {
		relaytest.AskUDP(t, relaytest.UDPClient(t, front), "x")
		if n := s.Counters.Open(); n > 2 {
			return fmt.Errorf("%d flows are open", n)
		}
		return nil
	})
}

// A datagram whose route does not forward is dropped and counted.
func TestDatagramsWithoutRoute(t *testing.T) {
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

// The flows of a draining Socket continue, and it closes with the last one. Before that it can be resumed. Datagrams that waited
// in the Socket at Drain are forwarded.
func TestDrainingFlows(t *testing.T) {
	front, back := at(1, 5300), at(2, 5300)
	relaytest.UDPEndpoint(t, back)
	s := serve(t, udp(svc("dns", "cluster-ip "+front, back)))
	socket := s.sockets[listen{sdk.UDP, addrPortOf(front)}]
	c := relaytest.UDPClient(t, front)
	keeps := func(when string) {
		t.Helper()
		if got := relaytest.AskUDP(t, c, "x"); got != back {
			t.Errorf("%s the endpoint of a flow is %s", when, got)
		}
	}
	drained := func() {
		eventually(t, func() error {
			udp := socket.(*udpSocket)
			udp.mu.Lock()
			defer udp.mu.Unlock()
			if !udp.draining && !udp.closed {
				return errors.New("the socket still begins flows")
			}
			return nil
		})
	}
	keeps("at first")
	queued := relaytest.UDPClient(t, front)
	_, _ = queued.Write([]byte("x"))
	if !socket.Drain() {
		t.Error("the socket was closed, although it has a flow")
	}
	s.carries(2)
	drained()
	keeps("after Drain")
	other := relaytest.UDPClient(t, front)
	_, _ = other.Write([]byte("x"))
	keeps("beside a new client")
	s.carries(2)
	if !socket.Resume() {
		t.Fatal("the socket was closed, although it has a flow")
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
