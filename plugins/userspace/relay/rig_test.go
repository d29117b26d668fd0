// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/relaytest"
)

// Short names of helpers.
var (
	at         = relaytest.Addr
	svc        = relaytest.Service
	udp        = relaytest.UDP
	endpoint   = relaytest.Endpoint
	echo       = relaytest.Echo
	dial       = relaytest.Dial
	ask        = relaytest.Ask
	finds      = relaytest.Finds
	wasReset   = relaytest.Reset
	wasRefused = relaytest.Refused
	eventually = relaytest.Eventually
)

// A rig is a Relay that serves Services at their frontends' own addresses. Services without endpoints have no sockets.
type rig struct {
	testing.TB
	*Relay
	services map[sdk.Name]*Service
	sockets  map[listen]Socket
	draining map[listen]Socket
}

// A listen is where a socket listens.
type listen struct {
	protocol sdk.Protocol
	addr     netip.AddrPort
}

// serve returns a rig that serves Services.
func serve(t testing.TB, services ...sdk.Service) *rig {
	t.Helper()
	relaytest.NeedsLoopback(t)
	g := &rig{TB: t, Relay: New(), services: make(map[sdk.Name]*Service), sockets: make(map[listen]Socket), draining: make(map[listen]Socket)}
	g.SetUDPIdle(relaytest.Timeout)
	t.Cleanup(g.close)
	g.set(services...)
	return g
}

// set serves new values of Services, and drains the sockets that they no longer need.
func (g *rig) set(services ...sdk.Service) {
	g.Helper()
	for _, svc := range services {
		svc.Normalize()
		s := g.services[svc.Name]
		if s == nil {
			s = NewService(svc)
			g.services[svc.Name] = s
		}
		s.Set(svc)
		wanted := make(map[listen]bool)
		for _, f := range svc.Frontends {
			at := listen{svc.Name.Protocol, f.Addr}
			if wanted[at] = len(svc.Cluster) > 0; wanted[at] {
				g.open(at).Serve(&Target{s, f})
			}
		}
		for at, socket := range g.sockets {
			if socket.Target().Service == s && !wanted[at] {
				g.drain(at)
			}
		}
	}
}

// remove stops serving a Service.
func (g *rig) remove(svc sdk.Service) {
	g.Helper()
	svc.Frontends = nil
	g.set(svc)
	delete(g.services, svc.Name)
}

func (g *rig) open(at listen) Socket {
	g.Helper()
	if s := g.draining[at]; s != nil {
		delete(g.draining, at)
		if s.Resume() {
			g.sockets[at] = s
		}
	}
	if g.sockets[at] == nil {
		s, err := g.Listen(g.Context(), at.protocol, at.addr)
		if err != nil {
			g.Fatal(err)
		}
		g.sockets[at] = s
	}
	return g.sockets[at]
}

func (g *rig) drain(at listen) {
	if s := g.sockets[at]; s.Drain() {
		g.draining[at] = s
	}
	delete(g.sockets, at)
}

// close closes all sockets and connections.
func (g *rig) close() {
	for _, s := range g.sockets {
		s.Close()
	}
	for _, s := range g.draining {
		s.Close()
	}
	g.Stop()
}

// carries waits until there are want connections and flows.
func (g *rig) carries(want int) {
	g.Helper()
	eventually(g, func() error {
		if n := g.Counters.Open(); n != want {
			return fmt.Errorf("%d connections and flows are open, want %d", n, want)
		}
		return nil
	})
}

func sourceRange(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// hostOf returns the address without the port.
func hostOf(text string) netip.Addr { return addrPortOf(text).Addr() }

func addrPortOf(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }
