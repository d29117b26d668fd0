// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
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
func (s *side) reap() error {
	for at := range s.book.have.servers {
		if !s.book.draining(at) {
			continue
		}
		if err := s.reapAt(at); err != nil {
			return err
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

// seeBusy finds what still has connections, and reports whether anything has them no more. The
// next plan takes that away.
func (s *side) seeBusy() (calmed bool, err error) {
	all, err := s.loads()
	if err != nil {
		return false, err
	}
	now := busy{servers: make(map[server]bool), addrs: make(map[netip.Addr]bool)}
	for at, loads := range all {
		if slices.ContainsFunc(slices.Collect(maps.Values(loads)), func(l load) bool { return l.active+l.inactive > 0 }) {
			now.servers[at] = true
			s.book.serve(at, now.addrs)
		}
	}
	return s.book.become(now), nil
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

// become takes note of what is busy now, touches what was and is no more, and reports whether
// there is such.
func (b *book) become(now busy) (calmed bool) {
	for at := range b.busy.servers {
		if !now.servers[at] {
			b.touched.servers[at], calmed = true, true
		}
	}
	for addr := range b.busy.addrs {
		if !now.addrs[addr] {
			b.touched.vips[addr], calmed = true, true
		}
	}
	b.busy = now
	return calmed
}

// settle looks in Standby for what has had its last connection, and reports whether there is
// something to take away.
func (s *side) settle() (due bool, err error) {
	if len(s.book.busy.servers) == 0 {
		return false, nil
	}
	return s.seeBusy()
}

// Flows are the connections of the virtual servers. Those that have been closed, and wait for
// their time to be over, are not counted; but for the first time, when some of them may be
// just beginning.
func (s *side) Flows(_ map[sdk.Name]sdk.Service, fresh bool) (n int, err error) {
	all, err := s.loads()
	for _, loads := range all {
		for _, l := range loads {
			if n += l.active; fresh {
				n += l.inactive
			}
		}
	}
	return n, err
}

// loads are what the virtual servers have to do.
func (s *side) loads() (table, error) {
	all := make(table)
	if len(s.book.have.servers) == 0 {
		return all, nil
	}
	listed, err := s.kernel.Table()
	if err != nil {
		return nil, err
	}
	for at := range s.book.have.servers {
		loads, there := listed[at]
		if !there {
			if loads, _, err = s.kernel.Loads(at); err != nil {
				return nil, err
			}
		}
		all[at] = loads
	}
	return all, nil
}
