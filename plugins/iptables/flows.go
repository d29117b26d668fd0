// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"maps"
	"net"
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// Forget ends UDP flows to these Services that lead nowhere.
func (f *family) Forget(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	own, err := f.nodePortAddrs()
	if err != nil {
		return 0, err
	}
	return conntrack.Forget(of, conntrack.Serving(of, services, func(a netip.Addr) bool { return own[a] }).Telling(step))
}

// nodePortAddrs are the node's addresses that take node ports now.
func (f *family) nodePortAddrs() (map[netip.Addr]bool, error) {
	addrs, err := addrsOf(net.InterfaceAddrs)
	if err != nil {
		return nil, err
	}
	own := make(map[netip.Addr]bool)
	for addr := range addrs {
		own[addr] = f.rules.node.node.TakesNodePorts(addr) && !f.rules.node.isBound(addr)
	}
	return own, nil
}

// A flow is one translated connection: its client, and where that sent to.
type flow struct {
	protocol uint8
	from, to netip.AddrPort
}

// Flows are what is left of the connections that were established when this dataplane began
// to drain. Its successor's are not among them, nor are those of a relay on this node, which
// rules lead to a socket where no endpoint is.
func (f *family) Flows(services map[sdk.Name]sdk.Service, fresh bool) (int, error) {
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
	if err := translated(f.rules.Family(), tell); err != nil {
		return 0, err
	}
	if fresh || f.draining == nil {
		f.draining = now
	}
	maps.DeleteFunc(f.draining, func(one flow, _ bool) bool { return !now[one] })
	return len(f.draining), nil
}

// relayed says of an address to which a connection is translated whether it is one of this
// node at which no Service has an endpoint.
func relayed(services map[sdk.Name]sdk.Service) (func(netip.AddrPort) bool, error) {
	own, err := addrsOf(net.InterfaceAddrs)
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
