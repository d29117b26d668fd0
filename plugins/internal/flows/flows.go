// SPDX-License-Identifier: Apache-2.0

// Package flows counts the connections that NAT rules have translated, for dataplanes that drain, and
// reads the addresses and default routes of the node. The kernel translates an established connection
// until it ends, even if the rules are gone. The package changes nothing. Start with Draining.
package flows

import (
	"fmt"
	"maps"
	"net"
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
)

// A flow is a translated connection: its client and the original destination.
type flow struct {
	protocol uint8
	from, to netip.AddrPort
}

// A Draining tracks the connections of one family that were established when a dataplane began to
// drain.
type Draining struct{ left map[flow]bool }

// Count returns the number of these connections that remain. fresh is set for the first count. It
// leaves out the connections of a successor, and those to a relay on this node. services are all
// Services of the node.
func (d *Draining) Count(family sdk.Family, services map[sdk.Name]sdk.Service, fresh bool) (int, error) {
	relayed, err := relayed(services)
	if err != nil {
		return 0, err
	}
	now := make(map[flow]bool)
	err = eachTranslated(family, func(f flow, reply netip.AddrPort) {
		if !relayed(reply) {
			now[f] = true
		}
	})
	if err != nil {
		return 0, err
	}
	if fresh || d.left == nil {
		d.left = now
	}
	maps.DeleteFunc(d.left, func(f flow, _ bool) bool { return !now[f] })
	return len(d.left), nil
}

// relayed returns a function that reports whether a translated destination is an address of this node
// where no Service has an endpoint, and so a relay's socket.
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

// IPVSDevice is the device to which an ipvs dataplane binds the addresses of Services. The kernel
// treats them as the node's own, but they take no node ports.
const IPVSDevice = "kube-ipvs0"

// Addrs returns the addresses of the node that list returns, with the number of times it does.
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
