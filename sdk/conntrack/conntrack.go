// SPDX-License-Identifier: Apache-2.0

// Package conntrack deletes the kernel's entries of flows whose endpoint no longer serves, for any
// dataplane. It must not delete other entries. Start reading at Served.Stale and Forget.
//
// A UDP client sends all its datagrams from one port, and the kernel sends each of them where
// it sent the first, for as long as they continue. If that endpoint is gone, or if there was
// none at the time of the first datagram, the flow never recovers by itself.
//
// TCP clients notice and open a new connection, and that finds the right endpoint, because the
// kernel chooses again even if the port is that of an earlier connection. There are two
// exceptions: a connection that the endpoint's side has reset, for 10 s, and one that was never
// answered, for 120 s. During that time, which restarts with each attempt, a new connection
// from the same port is sent where the earlier one was sent (ForgetFailed).
//
// Only the Active dataplane deletes UDP flows, and only those that the contract names (line 9
// in package sdk): the original destination is a frontend of a UDP Service, and the reply comes
// from none of its serving addresses. If it has none, or the frontend was removed, only
// translated flows are deleted, so that the next datagram is refused.
package conntrack

import (
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
)

// A Flow is the part of a UDP flow that Stale needs.
type Flow struct {
	To    netip.AddrPort // destination of its datagrams
	Reply netip.AddrPort // source of the replies that the kernel expects: the endpoint, after translation
}

// Served holds frontends of one protocol and their serving addresses. For the zero value no flow is
// stale.
type Served struct {
	at             map[netip.AddrPort]servers // an unspecified address stands for all that accept node ports
	takesNodePorts func(netip.Addr) bool
	step           func()
}

// servers are the addresses that serve a Service, regardless of policy, topology and readiness:
// endpoints with their port, because an address may serve at one port and not at another, and
// addresses of which the port is not known, with port zero.
type servers map[netip.AddrPort]bool

func (by servers) contain(ep netip.AddrPort) bool {
	return by[ep] || by[netip.AddrPortFrom(ep.Addr(), 0)]
}

// Serving returns the Served for those services that are UDP and of family. If two Services
// have the same frontend, the one with serving addresses counts: the other is its former owner.
// takesNodePorts reports whether an address of this node accepts node ports now.
func Serving(family sdk.Family, services []sdk.Service, takesNodePorts func(netip.Addr) bool) Served {
	return serving(sdk.UDP, family, services, takesNodePorts)
}

func serving(protocol sdk.Protocol, family sdk.Family, services []sdk.Service, takesNodePorts func(netip.Addr) bool) Served {
	s := Served{at: make(map[netip.AddrPort]servers), takesNodePorts: takesNodePorts, step: func() {}}
	for _, svc := range services {
		if svc.Name.Protocol != protocol || svc.Name.Family != family {
			continue
		}
		by := serversOf(svc)
		for _, f := range svc.Frontends {
			if s.at[f.Addr] == nil || len(by) > 0 {
				s.at[f.Addr] = by
			}
		}
	}
	return s
}

// Telling returns a copy of s that calls step for each flow it examines. Many flows take
// seconds on a busy node, and step can report progress.
func (s Served) Telling(step func()) Served {
	s.step = step
	return s
}

// Empty reports whether no flow can be stale, so that listing them is unnecessary.
func (s Served) Empty() bool { return len(s.at) == 0 }

// Stale reports whether f must be deleted.
func (s Served) Stale(f Flow) bool {
	by, ok := s.find(f.To)
	if len(by) == 0 {
		return ok && f.Reply != f.To // translated
	}
	return ok && !by.contain(f.Reply)
}

// find returns the servers of the frontend that a packet to an address is for, and whether there is
// one.
func (s Served) find(to netip.AddrPort) (servers, bool) {
	if by, ok := s.at[to]; ok {
		return by, true
	}
	every := netip.IPv4Unspecified()
	if to.Addr().Is6() {
		every = netip.IPv6Unspecified()
	}
	by, ok := s.at[netip.AddrPortFrom(every, to.Port())]
	return by, ok && s.takesNodePorts(to.Addr())
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
