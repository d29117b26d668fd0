// SPDX-License-Identifier: Apache-2.0

// Package flows counts the connections that rules of NAT have translated, for dataplanes that
// drain. The kernel goes on translating them, whatever becomes of the rules.
package flows

import (
	"fmt"
	"maps"
	"net"
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
)

// A flow is one translated connection: its client, and where that sent to.
type flow struct {
	protocol uint8
	from, to netip.AddrPort
}

// A Draining is what is left of the connections that were established when a dataplane began
// to drain in one family.
type Draining struct{ left map[flow]bool }

// Count counts them; fresh says that draining begins. Those of a successor are not among
// them, nor are those of a relay on this node, which rules lead to a socket where no endpoint
// is. services are all that there are.
func (d *Draining) Count(family sdk.Family, services map[sdk.Name]sdk.Service, fresh bool) (int, error) {
	relayed, err := relayed(services)
	if err != nil {
		return 0, err
	}
	now := make(map[flow]bool)
	tell := func(one flow, reply netip.AddrPort) {
		if !relayed(reply) {
			now[one] = true
		}
	}
	if err := translated(family, tell); err != nil {
		return 0, err
	}
	if fresh || d.left == nil {
		d.left = now
	}
	maps.DeleteFunc(d.left, func(one flow, _ bool) bool { return !now[one] })
	return len(d.left), nil
}

// relayed says of an address to which a connection is translated whether it is one of this
// node at which no Service has an endpoint.
func relayed(services map[sdk.Name]sdk.Service) (func(netip.AddrPort) bool, error) {
	own, err := Addrs(net.InterfaceAddrs)
	if err != nil {
		return nil, err
	}
	endpoints := make(map[netip.AddrPort]bool)
	for _, svc := range services {
		for _, ep := range svc.Reachable() {
			if own[ep.Addr.Addr()] > 0 {
				endpoints[ep.Addr] = true
			}
		}
	}
	return func(reply netip.AddrPort) bool { return own[reply.Addr()] > 0 && !endpoints[reply] }, nil
}

// IPVSDevice carries the addresses that an ipvs dataplane binds. The kernel takes them for the node's
// own, and yet they take no node ports: they are Services'.
const IPVSDevice = "kube-ipvs0"

// Addrs are the addresses of the node that list lists, and how often it does.
func Addrs(list func() ([]net.Addr, error)) (map[netip.Addr]int, error) {
	listed, err := list()
	if err != nil {
		return nil, fmt.Errorf("list the node's addresses: %w", err)
	}
	all := make(map[netip.Addr]int, len(listed))
	for _, a := range listed {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all[p.Addr()]++
		}
	}
	return all, nil
}
