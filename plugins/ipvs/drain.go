// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// A real that leaves gets weight 0 and keeps its connections. Nothing remembers it
// but the kernel: whatever has weight 0 and is not wanted is being drained, also in
// a process that starts anew.

// draining reports whether some real of at waits for its last connection.
func (b *book) draining(at server) bool {
	c, _ := b.places[at].first()
	for real, weight := range b.have.servers[at].reals {
		if weight == 0 && !c.place.wants(real) {
			return true
		}
	}
	return false
}

// reap removes the reals that have had their last connection. Only virtual servers
// that have such are read.
func (p *plugin) reap() error {
	for _, s := range p.sides {
		for at := range s.book.have.servers {
			if !s.book.draining(at) {
				continue
			}
			if err := s.reapAt(at); err != nil {
				s.known = false
				return err
			}
		}
	}
	return nil
}

func (s *side) reapAt(at server) error {
	loads, _, err := s.kernel.Loads(at)
	if err != nil {
		return err
	}
	c, _ := s.book.places[at].first()
	for real, l := range loads {
		if l.weight > 0 || l.active+l.inactive > 0 || c.place.wants(real) {
			continue
		}
		if err := s.kernel.RemoveReal(at, real); err != nil {
			return fmt.Errorf("remove real %s on %s: %w", real, at, err)
		}
		s.book.done(step{verb: removeReal, server: at, real: real})
	}
	return nil
}

// Busy is what Standby must not take away: connections that began while the role was
// another need their virtual server, its address on the node, and the rules that steady them.
type busy struct {
	servers map[server]bool
	addrs   map[netip.Addr]bool // on our device
}

// seeBusy finds what still has connections. What has them no more is touched, so that the
// next plan takes it away.
func (p *plugin) seeBusy() error {
	all, err := p.loads()
	if err != nil {
		return err
	}
	for _, s := range p.sides {
		now := busy{servers: make(map[server]bool), addrs: make(map[netip.Addr]bool)}
		for at, loads := range all[s] {
			if slices.ContainsFunc(slices.Collect(maps.Values(loads)), func(l load) bool { return l.active+l.inactive > 0 }) {
				now.servers[at] = true
				s.book.serve(at, now.addrs)
			}
		}
		s.book.become(now)
	}
	return nil
}

// serve notes the addresses by which the virtual server at a place is reached.
func (b *book) serve(at server, addrs map[netip.Addr]bool) {
	if at.mark == 0 {
		addrs[at.addr.Addr()] = true
		return
	}
	c, _ := b.places[at].first()
	for _, vip := range b.pieces[c.name].vips {
		addrs[vip] = true
	}
}

// become takes note of what is busy now.
func (b *book) become(now busy) {
	for at := range b.busy.servers {
		if !now.servers[at] {
			b.touched.servers[at] = true
		}
	}
	for addr := range b.busy.addrs {
		if !now.addrs[addr] {
			b.touched.vips[addr] = true
		}
	}
	b.busy = now
}

// settle takes away in Standby what has had its last connection.
func (p *plugin) settle(ctx context.Context) error {
	if !slices.ContainsFunc(p.sides, func(s *side) bool { return len(s.book.busy.servers) > 0 }) {
		return nil
	}
	if err := p.seeBusy(); err != nil {
		return err
	}
	return p.follow(ctx)
}

// countFlows says how many connections are left, while another dataplane takes the
// new ones. Those that have been closed, and wait for their time to be over, are not
// counted; but for the first time, when some of them may be just beginning.
func (p *plugin) countFlows(first bool) error {
	all, err := p.loads()
	if err != nil {
		return err
	}
	n := 0
	for _, servers := range all {
		for _, loads := range servers {
			for _, l := range loads {
				if n += l.active; first {
					n += l.inactive
				}
			}
		}
	}
	p.recount = first
	p.tellFlows(n)
	return nil
}

func (p *plugin) tellFlows(n int) { p.status.Tell(func(r *sdk.Report) { r.Flows = n }) }

// loads are what the virtual servers of each side have to do.
func (p *plugin) loads() (map[*side]table, error) {
	all := make(map[*side]table)
	if !slices.ContainsFunc(p.sides, func(s *side) bool { return len(s.book.have.servers) > 0 }) {
		return all, nil
	}
	listed, err := p.kernel.Table()
	if err != nil {
		return nil, err
	}
	for _, s := range p.sides {
		all[s] = make(table)
		for at := range s.book.have.servers {
			loads, there := listed[at]
			if !there {
				if loads, _, err = s.kernel.Loads(at); err != nil {
					return nil, err
				}
			}
			all[s][at] = loads
		}
	}
	return all, nil
}
