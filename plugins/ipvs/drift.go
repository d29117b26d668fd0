// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/sdk"
)

// This file finds drift: where another program changed what this one wrote.

// moved reports whether the node's own addresses are others than we know.
func (o *objects) moved(h addrChanges) bool {
	return slices.ContainsFunc(h.others, func(c change) bool {
		return sdk.FamilyOf(c.addr) == o.node.family && o.have.others[c.addr] == c.gone
	})
}

// lost reports whether our device lost an address that we bound.
func (o *objects) lost(h addrChanges) bool {
	return slices.ContainsFunc(h.lost, func(a netip.Addr) bool { return o.have.vips[a] })
}

// drifted is where something was removed, or added: a virtual service, of which one is
// asked for; an entry, of which the sets tell how many they have.
func (f *family) drifted() (parts, error) {
	var gone parts
	for at := range f.objects.have.services {
		_, there, err := f.kernel.Loads(at)
		if err != nil {
			return 0, err
		}
		if !there {
			gone |= inServices
		}
		break
	}
	if f.setsDiffer() {
		gone |= inSets
	}
	return gone, nil
}

// setsDiffer reports whether a set has another number of entries than we know of. What
// did not add up right after all was read is not held against it: the kernel may take
// two entries for one.
func (f *family) setsDiffer() bool {
	for set, known := range f.objects.have.counts {
		n, err := f.kernel.Count(set, f.objects.node.family)
		if err != nil || n >= 0 && n != known+f.extra[set] {
			return true
		}
	}
	return false
}

// recount notes what does not add up.
func (f *family) recount() {
	clear(f.extra)
	for set, known := range f.objects.have.counts {
		if n, err := f.kernel.Count(set, f.objects.node.family); err == nil && n != known {
			f.extra[set] = n - known
		}
	}
}

// Probe repairs nothing: it says what another program removed or added, as far as that costs
// little, and what is due by itself.
func (f *family) Probe(ctx context.Context) (found frame.Finding) {
	f.rules.Look(ctx)
	found = f.doubted()
	changes := f.session.take(f.objects.node.family)
	if f.objects.lost(changes) {
		found.Lost, found.Why = found.Lost|frame.Parts(inAddrs), "an address was removed"
	}
	f.moved = f.moved || changes.missed || f.objects.moved(changes)
	found.Moved = f.moved
	if time.Since(f.probed) < probeEvery {
		return found
	}
	f.probed = time.Now()
	gone, err := f.drifted()
	if gone != 0 {
		found.Lost, found.Why = found.Lost|frame.Parts(gone), "virtual services, or entries of sets, are others than were written"
	}
	if err == nil && time.Since(f.reaped) >= reapEvery {
		f.reaped = time.Now()
		if err = f.reap(); err != nil {
			found.Lost, found.Why = frame.All, "a destination could not be removed"
		}
	}
	if err == nil && time.Since(f.idleChecked) >= idleEvery {
		f.idleChecked = time.Now()
		found.Due, err = f.upkeep()
	}
	if err != nil && ctx.Err() == nil {
		f.session.env.Log.Warn("cannot look after the kernel", "family", f.objects.node.family, "err", err)
	}
	return found
}

// How often is looked for what no process tells of. To ask costs some messages to the kernel,
// so it is not done each time that an address comes or goes.
const (
	probeEvery = 900 * time.Millisecond // what another program removed or added
	reapEvery  = time.Minute            // destinations that have had their last connection
	idleEvery  = 5 * time.Second        // in Standby, what is busy no more; while Active, a parameter
)

// upkeep does what is due by itself in a role, and reports whether there is something to write.
func (f *family) upkeep() (due bool, err error) {
	switch f.objects.role {
	case sdk.Standby:
		if len(f.objects.busy.services) == 0 {
			return false, nil
		}
		return f.seeBusy() // what has had its last connection is taken away
	case sdk.Active:
		return false, f.session.keepTracking(f)
	}
	return false, nil
}

// doubted are the rules, if they may not be as they were written.
func (f *family) doubted() (found frame.Finding) {
	if found.Why = f.rules.Doubt(); found.Why != "" {
		found.Lost = frame.Parts(inRules(f.objects.node.family))
	}
	found.Unsure = found.Why == "" && f.rules.Waits()
	return found
}

// Audit compares a few virtual services and entries, and one chain or jump, with what we know
// of them.
func (f *family) Audit(ctx context.Context) frame.Finding {
	f.rules.Audit(ctx)
	same, err := f.sample()
	if err != nil {
		f.session.env.Log.Warn("cannot compare with the kernel", "family", f.objects.node.family, "err", err)
		return f.doubted()
	}
	if !same {
		return frame.Finding{Lost: frame.All, Why: "an audit found something else than was written"}
	}
	return f.doubted()
}

const (
	auditShare = 3    // a round over all virtual services takes so many audits, which is 30 s,
	auditMost  = 1000 // or more, if an audit would take longer than some 0.1 s
)

// turn takes from round what an audit looks at. When a round is over the next begins.
func turn[K comparable, V any](round *[]K, all map[K]V) []K {
	if len(*round) == 0 {
		*round = slices.Collect(maps.Keys(all))
	}
	n := min(len(*round), 1+len(all)/auditShare, auditMost)
	some := (*round)[:n]
	*round = (*round)[n:]
	return some
}

// sample reports whether some of what there is, is as we know it.
func (f *family) sample() (bool, error) {
	for _, at := range turn(&f.auditServices, f.objects.have.services) {
		v, ours := f.objects.have.services[at]
		if !ours {
			continue
		}
		loads, there, err := f.kernel.Loads(at)
		if err != nil || !there || !v.like(loads) {
			return false, err
		}
	}
	for _, e := range turn(&f.auditEntries, f.objects.have.entries) {
		if _, ours := f.objects.have.entries[e]; !ours {
			continue
		}
		if there, err := f.kernel.Has(e); err != nil || !there {
			return false, err
		}
	}
	return true, nil
}

func (v observed) like(loads map[netip.AddrPort]load) bool {
	if len(loads) != len(v.dests) {
		return false
	}
	for dest, weight := range v.dests {
		if l, there := loads[dest]; !there || l.weight != weight {
			return false
		}
	}
	return true
}
