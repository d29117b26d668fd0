// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// This file finds where the kernel is not as we know it, because somebody else changed
// it.

// moved reports whether the node's own addresses are others than we know.
func (b *book) moved(h heard) bool {
	return slices.ContainsFunc(h.others, func(c change) bool {
		return sdk.FamilyOf(c.addr) == b.ground.family && b.have.others[c.addr] == c.gone
	})
}

// lost reports whether our device lost an address that we bound.
func (b *book) lost(h heard) bool {
	return slices.ContainsFunc(h.lost, func(a netip.Addr) bool { return b.have.vips[a] })
}

// gone is where something was taken away, or added: a virtual server, of which one is
// asked for; an entry, of which the sets tell how many they have; rules.
func (s *side) gone(ctx context.Context) (parts, error) {
	if !s.known {
		return inAll, nil
	}
	var gone parts
	for at := range s.book.have.servers {
		_, there, err := s.kernel.Loads(at)
		if err != nil {
			return 0, err
		}
		if !there {
			gone |= inServers
		}
		break
	}
	if s.emptied() {
		gone |= inSets
	}
	if s.rules.changed() {
		tables, err := s.rules.Save(ctx)
		if err != nil {
			return 0, err
		}
		if s.flushed(tables) {
			s.seen = tables
			gone |= inRules(s.book.ground.family)
		}
	}
	return gone, nil
}

// emptied reports whether a set has another number of entries than we know of. What
// did not add up right after all was read is not held against it: the kernel may take
// two entries for one.
func (s *side) emptied() bool {
	for set, known := range s.book.have.counts {
		n, err := s.kernel.Count(set, s.book.ground.family)
		if err != nil || n >= 0 && n != known+s.extra[set] {
			return true
		}
	}
	return false
}

// weigh notes what does not add up.
func (s *side) weigh() {
	clear(s.extra)
	for set, known := range s.book.have.counts {
		if n, err := s.kernel.Count(set, s.book.ground.family); err == nil && n != known {
			s.extra[set] = n - known
		}
	}
}

// saved is what the tables say. To start a program takes time, so what the probe under
// way has read is not read again.
func (s *side) saved(ctx context.Context) (iptables.Tables, error) {
	if s.seen != nil {
		return s.seen, nil
	}
	return s.rules.Save(ctx)
}

// flushed reports whether chains or jumps of ours, or what all dataplanes share, are otherwise
// than we know.
func (s *side) flushed(tables iptables.Tables) bool {
	if !s.masq.Stands(tables) {
		return true
	}
	for id, text := range s.book.have.chains {
		if rules, there := tables[id]; !there || iptables.Join(rules) != text {
			return true
		}
	}
	for j := range s.book.have.jumps {
		if !tables.Has(j.at, j.rule) {
			return true
		}
	}
	return false
}

// audit compares a few virtual servers and entries with what we know of them.
func (p *plugin) audit(ctx context.Context, n int) error {
	for _, s := range p.sides {
		same, err := s.sample()
		if err == nil && same && n%tableBeats == tableBeats-1 {
			var tables iptables.Tables
			tables, err = s.rules.Save(ctx)
			same = !s.flushed(tables)
		}
		if err != nil {
			return err
		}
		if !same {
			s.known = false // the next probe repairs it
		}
	}
	return nil
}

// sample reports whether some of what there is, is as we know it. The order of a map
// is another each time.
func (s *side) sample() (bool, error) {
	i := 0
	for at, v := range s.book.have.servers {
		if i++; i > 1+len(s.book.have.servers)/auditShare {
			break
		}
		loads, there, err := s.kernel.Loads(at)
		if err != nil || !there || !v.like(loads) {
			return false, err
		}
	}
	i = 0
	for e := range s.book.have.entries {
		if i++; i > 1+len(s.book.have.entries)/auditShare {
			break
		}
		if there, err := s.kernel.Has(e); err != nil || !there {
			return false, err
		}
	}
	return true, nil
}

func (v virtual) like(loads map[netip.AddrPort]load) bool {
	if len(loads) != len(v.reals) {
		return false
	}
	for real, weight := range v.reals {
		if l, there := loads[real]; !there || l.weight != weight {
			return false
		}
	}
	return true
}
