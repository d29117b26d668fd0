// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A Foreseen is what a Relay would do with a connection or a flow that begins now.
type Foreseen struct {
	Verdict   sdk.Verdict      // of the Service's route; Forward: to one of Endpoints
	Endpoints []netip.AddrPort // each is as likely
	Kept      netip.AddrPort   // the one that its client keeps, which is tried first; zero: none
	Full      bool             // there are so many flows of UDP that no other begins
	Mark      uint32           // on what is sent to an endpoint
	Attempts  int              // at endpoints, before the client is turned away
}

// attemptsUDP is how many endpoints a datagram is sent to, where sending is an error.
const attemptsUDP = 2

// Foresee says what would become now of a client of a target. It changes nothing, and waits for nothing.
func (r *Relay) Foresee(t *Target, from sdk.Caller) Foreseen {
	svc := t.Service.Value()
	route := svc.Route(t.Frontend, from, r.node.Load().Node)
	f := Foreseen{Verdict: route.Verdict, Mark: r.mark.Load(), Attempts: len(dialTimeouts)}
	if svc.Name.Protocol == sdk.UDP {
		f.Attempts, f.Full = attemptsUDP, r.counters.flows.Load() >= maxFlows
	}
	for _, ep := range route.Endpoints {
		f.Endpoints = append(f.Endpoints, ep.Addr)
	}
	if svc.Affinity > 0 {
		if kept, is := t.Service.affinity.kept(from.Addr, time.Now()); is && has(route.Endpoints, kept) {
			f.Kept = kept
		}
	}
	return f
}

// Caller says where a client at addr is, by the node's addresses and pods, and the device by which it came in if
// that is known: what sockets go by that no rules lead to, and all of UDP.
func (r *Relay) Caller(addr netip.Addr, device string) sdk.Caller {
	return r.node.Load().caller(addr, device)
}

// Door says to which clients the shared listener at a port belongs; false: it is none.
func (x *Redirected) Door(f sdk.Family, port uint16) (from sdk.Origin, is bool) {
	for i, p := range x.Ports(f) {
		if p == port && p != 0 {
			return sdk.Origin(i), true
		}
	}
	return 0, false
}

// Target is what connections to an address are for that come in by the shared listeners; nil: they are reset.
func (x *Redirected) Target(to netip.AddrPort) *Target {
	if s := x.find(to); s != nil {
		return s.Target()
	}
	return nil
}

// kept is the endpoint that a client keeps.
func (a *affinity) kept(client netip.Addr, now time.Time) (netip.AddrPort, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, is := a.entries[client]
	return e.endpoint, is && now.Before(e.until)
}
