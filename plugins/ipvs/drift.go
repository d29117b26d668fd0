// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
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
	return !s.masq.Stands(tables) || !s.book.have.rules.In(tables)
}

// Probe repairs nothing: it says what somebody took away or added, as far as that costs
// little, and what is due by itself.
func (s *side) Probe(ctx context.Context) (found frame.Finding) {
	s.seen = nil
	heard := s.host.take(s.book.ground.family)
	if s.book.lost(heard) {
		found.Lost, found.Why = frame.Parts(inAddrs), "an address was taken away"
	}
	s.moved = s.moved || heard.missed || s.book.moved(heard)
	found.Moved = s.moved
	if time.Since(s.probed) < probeEvery {
		return found
	}
	s.probed = time.Now()
	gone, err := s.gone(ctx)
	if gone != 0 {
		found.Lost, found.Why = found.Lost|frame.Parts(gone), "virtual servers, entries of sets, or rules are others than were written"
	}
	if err == nil && time.Since(s.reaped) >= reapEvery {
		s.reaped = time.Now()
		if err = s.reap(); err != nil {
			found.Lost, found.Why = frame.All, "a real could not be removed"
		}
	}
	if err == nil && time.Since(s.calmed) >= calmEvery {
		s.calmed = time.Now()
		found.Due, err = s.upkeep()
	}
	if err != nil && ctx.Err() == nil {
		s.host.env.Log.Warn("cannot look after the kernel", "family", s.book.ground.family, "err", err)
	}
	return found
}

// How often is looked for what no process tells of. To ask costs some messages to the kernel,
// so it is not done each time that an address comes or goes.
const (
	probeEvery = 900 * time.Millisecond // what somebody took away or added: with every other probe, or each that is late
	reapEvery  = time.Minute            // reals that have had their last connection
	calmEvery  = 5 * time.Second        // in Standby, what is busy no more; while Active, a parameter
)

// upkeep does what is due by itself in a role, and reports whether there is something to write.
func (s *side) upkeep() (due bool, err error) {
	switch s.book.role {
	case sdk.Standby:
		return s.settle()
	case sdk.Active:
		return false, s.host.keepTracking(s)
	}
	return false, nil
}

// Audit compares a few virtual servers and entries with what we know of them, and now and
// then the rules.
func (s *side) Audit(ctx context.Context) frame.Finding {
	s.audits++
	same, err := s.sample()
	if err == nil && same && s.audits%tableAudits == 0 {
		var tables iptables.Tables
		tables, err = s.rules.Save(ctx)
		same = err == nil && !s.flushed(tables)
	}
	if err != nil {
		s.host.env.Log.Warn("cannot compare with the kernel", "family", s.book.ground.family, "err", err)
		return frame.Finding{}
	}
	if !same {
		return frame.Finding{Lost: frame.All, Why: "an audit found something else than was written"}
	}
	return frame.Finding{}
}

const (
	auditShare  = 60 // a round over all virtual servers takes so many audits
	tableAudits = 6  // and the rules are read with one of so many
)

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
