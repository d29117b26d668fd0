// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"maps"
	"net"
	"net/netip"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// forget ends UDP flows that the changes left leading nowhere.
func (p *plugin) forget(c sdk.Changes, failed []sdk.Failure) error {
	services := duty.UDP(p.state, c, failed)
	if len(services) == 0 {
		return nil
	}
	own, err := p.nodePortAddrs()
	if err != nil {
		return err
	}
	for _, s := range p.sides {
		family := s.Family()
		began := time.Now()
		n, err := conntrack.Forget(family, conntrack.Serving(family, services, func(a netip.Addr) bool { return own[a] }).Telling(p.status.Step))
		s.rounds.Count(time.Since(began), n)
		if err != nil {
			return err
		}
		if n > 0 {
			p.log.Info("forgot udp flows", "family", family, "flows", n)
		}
	}
	return nil
}

// nodePortAddrs are the node's addresses that take node ports now.
func (p *plugin) nodePortAddrs() (map[netip.Addr]bool, error) {
	addrs, err := addrsOf(net.InterfaceAddrs)
	if err != nil {
		return nil, err
	}
	own := make(map[netip.Addr]bool)
	for addr := range addrs {
		own[addr] = p.state.Node.TakesNodePorts(addr) && !p.bound(addr)
	}
	return own, nil
}

// A flow is one translated connection: who called whom.
type flow struct {
	protocol uint8
	from, to netip.AddrPort
}

// countEvery is how often established connections are counted: it lists them all.
const countEvery = 5 * time.Second

// countFlows counts what is left of the connections that were established when
// this dataplane began to drain. Its successor's are not among them, nor are those of a
// relay on this node, which rules lead to a socket where no endpoint is.
func (p *plugin) countFlows() {
	if time.Since(p.drain.counted) < countEvery {
		return
	}
	p.drain.counted = time.Now()
	now := make(map[flow]bool)
	relayed, err := p.relayed()
	if err != nil {
		p.log.Warn("cannot count established connections", "err", err)
		return
	}
	for _, s := range p.sides {
		tell := func(f flow, reply netip.AddrPort) {
			if !relayed(reply) {
				now[f] = true
			}
		}
		if err := translated(s.Family(), tell); err != nil {
			p.log.Warn("cannot count established connections", "err", err)
			return
		}
	}
	if p.drain.left == nil {
		p.drain.left = now
	}
	maps.DeleteFunc(p.drain.left, func(f flow, _ bool) bool { return !now[f] })
	p.tellFlows(len(p.drain.left))
}

// relayed says of an address to which a connection is translated whether it is one of this
// node at which no Service has an endpoint.
func (p *plugin) relayed() (func(netip.AddrPort) bool, error) {
	own, err := addrsOf(net.InterfaceAddrs)
	if err != nil {
		return nil, err
	}
	endpoints := make(map[netip.AddrPort]bool)
	for _, svc := range p.state.Services {
		for _, ep := range svc.Reachable() {
			if own[ep.Addr.Addr()] > 0 {
				endpoints[ep.Addr] = true
			}
		}
	}
	return func(reply netip.AddrPort) bool { return own[reply.Addr()] > 0 && !endpoints[reply] }, nil
}

// undrained forgets what was counted.
func (p *plugin) undrained() {
	p.drain = drain{}
	p.tellFlows(0)
}

func (p *plugin) tellFlows(n int) { p.status.Tell(func(r *sdk.Report) { r.Flows = n }) }

// A drain is how far Draining is.
type drain struct {
	left    map[flow]bool // nil: not counted yet
	counted time.Time
}
