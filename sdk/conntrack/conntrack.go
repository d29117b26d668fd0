// SPDX-License-Identifier: Apache-2.0

// Package conntrack forgets what the kernel remembers of flows that lead nowhere, for any
// dataplane.
//
// A UDP client keeps sending from one port, and the kernel keeps sending each of
// those datagrams where it sent the first, for as long as they come. When that
// endpoint is gone, or when there was none at the first datagram, the flow never
// finds the right one by itself.
//
// TCP clients notice, and begin a new connection. It finds the right endpoint, because
// the kernel looks for one anew, even if the port is that of a connection before. The
// exceptions are a connection that the endpoint's side has reset, for 10 s, and one that
// was never answered, for 120 s: until then, and anew with each attempt, the next one from
// that port is sent where the one before was sent (ForgetFailed).
//
// Only the Active dataplane forgets UDP flows, and only those that the contract names
// (line 9 in package sdk): the original destination is a frontend of a UDP Service, and the
// reply comes from none of the addresses that serve it. Where none serves it, or the frontend is
// gone, only flows that were translated are forgotten, so that the next datagram is refused.
package conntrack

import (
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
)

// A Flow is what must be known of one UDP flow to judge it.
type Flow struct {
	To    netip.AddrPort // where its datagrams were sent
	Reply netip.AddrPort // whose replies the kernel expects: the endpoint, after translation
}

// Served holds which UDP frontends are served, and by which addresses. The zero value holds
// none, and so finds no flow stale.
type Served struct {
	byAddr map[netip.AddrPort]servers // frontends with an address of their own
	byPort map[uint16]servers         // frontends on every address that takes node ports
	local  func(netip.Addr) bool
	step   func()
}

// servers are the addresses that serve a Service, whatever policy, topology or readiness say of
// them: endpoints with their port, for one may go on at another, and addresses of
// which only that is known, with port zero.
type servers map[netip.AddrPort]bool

func (by servers) have(ep netip.AddrPort) bool {
	return by[ep] || by[netip.AddrPortFrom(ep.Addr(), 0)]
}

// Serving gathers what services say. It looks at those that are UDP and of family. Where two Services have the
// same frontend, the one with serving addresses counts: the other is its former owner. takesNodePorts reports whether an address
// is one of this node's that take node ports now.
func Serving(family sdk.Family, services []sdk.Service, takesNodePorts func(netip.Addr) bool) Served {
	s := Served{byAddr: make(map[netip.AddrPort]servers), byPort: make(map[uint16]servers), local: takesNodePorts}
	for _, svc := range services {
		if svc.Name.Protocol != sdk.UDP || svc.Name.Family != family {
			continue
		}
		by := serversOf(svc)
		for _, f := range svc.Frontends {
			if f.Addr.Addr().IsUnspecified() {
				take(s.byPort, f.Addr.Port(), by)
			} else {
				take(s.byAddr, f.Addr, by)
			}
		}
	}
	return s
}

func take[K comparable](all map[K]servers, frontend K, by servers) {
	if all[frontend] == nil || len(by) > 0 {
		all[frontend] = by
	}
}

// Telling returns s, which calls step for each flow that is looked at. Many flows take
// seconds on a busy node, and code that waits for them should see that it makes progress.
func (s Served) Telling(step func()) Served {
	s.step = step
	return s
}

// Empty reports whether no flow can be stale, so that none need be listed.
func (s Served) Empty() bool { return len(s.byAddr) == 0 && len(s.byPort) == 0 }

// Stale reports whether f is to be forgotten.
func (s Served) Stale(f Flow) bool {
	by, ok := s.byAddr[f.To]
	if !ok {
		by, ok = s.byPort[f.To.Port()]
		ok = ok && s.local(f.To.Addr())
	}
	if len(by) == 0 {
		return ok && f.Reply != f.To // translated
	}
	return ok && !by.have(f.Reply)
}

func serversOf(svc sdk.Service) servers {
	by := make(servers, len(svc.Cluster)+len(svc.Serving))
	for _, ep := range svc.Reachable() {
		by[ep.Addr] = true
	}
	for _, addr := range svc.Serving {
		by[netip.AddrPortFrom(addr, 0)] = true
	}
	return by
}
