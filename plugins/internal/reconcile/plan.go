// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// A Plan changes the installed entries into the desired ones.
type Plan[P Piece[P], K, V comparable] struct {
	r        *Reconciler[P, K, V]
	rebuild  bool
	fixed    []Change[K, V]
	services []*service[P, K, V]
	linked   int // the first services, which exchange entries and are written in one batch

	scratch []Change[K, V] // reused by compare
	had     entries[K, V]  // the entries that the kernel has for the Service that is compared
}

// A service is the part of a plan that changes one Service.
type service[P Piece[P], K, V comparable] struct {
	name    sdk.Name
	to      P
	changes []Change[K, V]
	gains   []K                 // counted entries that the Service needs from now on
	drops   []K                 // counted entries that it no longer needs
	peers   []*service[P, K, V] // Services with which it exchanges entries
	why     error               // the kernel's reason to refuse an entry
}

// entries are the entries that the kernel has for a Service.
type entries[K, V comparable] struct {
	values  map[K]V
	counted map[K]bool
}

// Plan returns the difference between the installed and the desired entries: of all Services
// after List, and otherwise of those that were touched. The caller must apply each plan before it
// makes the next one.
func (r *Reconciler[P, K, V]) Plan() Plan[P, K, V] {
	p := Plan[P, K, V]{r: r}
	if r.listed == nil {
		p.compareTouched()
		if r.refix {
			p.compareFixed(r.fixed)
		}
	} else {
		p.compareListed()
		if p.mustRebuild() {
			r.listed, r.installed = make(map[K]V), make(map[sdk.Name]P)
			clear(r.uses)
			clear(r.need)
			p = Plan[P, K, V]{r: r, rebuild: true}
			p.compareListed()
		}
		r.fixed = make(map[K]V) // not r.listed, which has room for all entries
		maps.Copy(r.fixed, r.listed)
		r.listed = r.fixed
		p.compareFixed(r.fixed)
	}
	slices.SortFunc(p.services, func(a, b *service[P, K, V]) int { return cmp.Compare(len(a.changes), len(b.changes)) })
	var linked, others []*service[P, K, V]
	for _, s := range p.services {
		if len(s.peers) > 0 {
			linked = append(linked, s)
		} else {
			others = append(others, s)
		}
	}
	p.services, p.linked = append(linked, others...), len(linked)
	return p
}

// requires records that an entry of a container is installed or will be.
func (r *Reconciler[P, K, V]) requires(container string) {
	if container != "" && !r.need[container] {
		r.need[container], r.refix = true, true
	}
}

// compareTouched compares the desired and the installed pieces of the touched Services.
func (p *Plan[P, K, V]) compareTouched() {
	r := p.r
	for name := range r.touched {
		want, had := r.desired[name], r.installed[name]
		if want.Equal(had) {
			r.install(name, want) // one copy for both
			continue
		}
		p.had = entries[K, V]{make(map[K]V), make(map[K]bool)}
		r.mode.Entries(name, had, func(k K, v V) {
			if r.mode.Kind(k).Counted {
				p.had.counted[k] = true
			} else {
				p.had.values[k] = v
			}
		})
		p.compare(name, false)
	}
	p.installUnchanged()
	p.link()
}

// compareListed compares the listed entries with those of all desired pieces. It leaves in
// r.listed the entries that belong to no Service.
func (p *Plan[P, K, V]) compareListed() {
	r := p.r
	for k := range r.listed {
		if r.mode.Kind(k).Counted {
			r.uses[k] = 0
			delete(r.listed, k)
		}
	}
	var changing []sdk.Name
	for name, had := range r.installed {
		if want, wanted := r.desired[name]; wanted && want.Equal(had) {
			p.compare(name, true)
		} else {
			changing = append(changing, name)
		}
	}
	for name := range r.desired {
		if _, installed := r.installed[name]; !installed {
			changing = append(changing, name)
		}
	}
	for _, name := range changing {
		p.claim(name)
		p.compare(name, false)
	}
	for _, s := range p.services { // the entries that are left belong to nobody, so a Service that needs one takes it
		left := s.changes[:0]
		for _, c := range s.changes {
			if was, listed := r.listed[c.Key]; listed && c.Op == Add {
				delete(r.listed, c.Key)
				if was == c.New {
					continue
				}
				c = Change[K, V]{Op: Replace, Key: c.Key, Old: was, New: c.New}
			}
			left = append(left, c)
		}
		s.changes = left
	}
	if len(r.installed) == 0 { // room for all at once
		r.installed = make(map[sdk.Name]P, len(r.desired))
	}
	p.installUnchanged()
	p.link()
	p.removeUnused()
}

// claim removes the entries of an installed piece from r.listed, and stores those that were listed
// in p.had.
func (p *Plan[P, K, V]) claim(name sdk.Name) {
	r := p.r
	p.had = entries[K, V]{}
	had, installed := r.installed[name]
	if !installed {
		return
	}
	p.had = entries[K, V]{make(map[K]V), make(map[K]bool)}
	r.mode.Entries(name, had, func(k K, _ V) {
		kind := r.mode.Kind(k)
		if kind.Counted {
			if _, listed := r.uses[k]; listed && !p.had.counted[k] { // a piece of damaged entries may have a key twice
				r.uses[k]++
				p.had.counted[k] = true
			}
		} else if was, listed := r.listed[k]; listed {
			r.requires(kind.Container)
			p.had.values[k] = was
			delete(r.listed, k)
		}
	})
}

// compare adds a Service to the plan if the entries that the kernel has for it, which are in p.had,
// differ from those of its desired piece. unchanged says that the desired piece is the installed
// one. Then its entries are still in r.listed.
func (p *Plan[P, K, V]) compare(name sdk.Name, unchanged bool) {
	r, had := p.r, p.had
	s := &service[P, K, V]{name: name, to: r.desired[name], changes: p.scratch[:0]}
	r.mode.Entries(name, s.to, func(k K, v V) {
		kind := r.mode.Kind(k)
		r.requires(kind.Container)
		if kind.Counted {
			_, listed := r.uses[k]
			switch {
			case unchanged && listed:
				r.uses[k]++
			case !unchanged && had.counted[k]:
				delete(had.counted, k)
			default:
				s.gains = append(s.gains, k)
			}
			return
		}
		from := had.values
		if unchanged {
			from = r.listed
		}
		was, there := from[k]
		delete(from, k)
		switch {
		case !there:
			s.changes = append(s.changes, Change[K, V]{Op: Add, Key: k, New: v})
		case was != v:
			s.changes = append(s.changes, Change[K, V]{Op: Replace, Key: k, Old: was, New: v})
		}
	})
	if !unchanged && len(had.values)+len(had.counted) > 0 {
		r.mode.Entries(name, r.installed[name], func(k K, _ V) { // for an order that is always the same
			if was, left := had.values[k]; left {
				s.changes = append(s.changes, Change[K, V]{Op: Remove, Key: k, Old: was})
			} else if had.counted[k] {
				s.drops = append(s.drops, k)
			}
			delete(had.values, k)
			delete(had.counted, k)
		})
	}
	p.scratch = s.changes
	if unchanged && len(s.changes)+len(s.gains) == 0 {
		r.install(name, s.to) // one copy for both
		return
	}
	s.changes = slices.Clone(s.changes)
	p.services = append(p.services, s)
}

// installUnchanged removes from the plan the Services for which there is nothing to write.
func (p *Plan[P, K, V]) installUnchanged() {
	r := p.r
	isNew := func(k K) bool {
		_, used := r.uses[k]
		return !used
	}
	p.services = slices.DeleteFunc(p.services, func(s *service[P, K, V]) bool {
		if len(s.changes)+len(s.drops) > 0 || slices.ContainsFunc(s.gains, isNew) {
			return false
		}
		for _, k := range s.gains {
			r.uses[k]++
		}
		r.install(s.name, s.to)
		return true
	})
}

// link merges the removal of an entry from one Service and its addition to another into one
// change, and makes the two Services peers.
func (p *Plan[P, K, V]) link() {
	type place struct {
		of *service[P, K, V]
		at int
	}
	removed := make(map[K]place)
	for _, s := range p.services {
		for i, c := range s.changes {
			if c.Op == Remove {
				removed[c.Key] = place{s, i}
			}
		}
	}
	if len(removed) == 0 {
		return
	}
	merged := make(map[*service[P, K, V]]map[K]bool)
	for _, s := range p.services {
		for i, c := range s.changes {
			from, moves := removed[c.Key]
			if !moves || c.Op != Add {
				continue
			}
			s.changes[i] = Change[K, V]{Op: Replace, Key: c.Key, Old: from.of.changes[from.at].Old, New: c.New}
			if merged[from.of] == nil {
				merged[from.of] = make(map[K]bool)
			}
			merged[from.of][c.Key] = true
			if !slices.Contains(s.peers, from.of) {
				s.peers, from.of.peers = append(s.peers, from.of), append(from.of.peers, s)
			}
		}
	}
	for s, keys := range merged {
		s.changes = slices.DeleteFunc(s.changes, func(c Change[K, V]) bool { return keys[c.Key] })
	}
}

// mustRebuild reports whether a listed entry has a wrong value and cannot be changed in place.
func (p *Plan[P, K, V]) mustRebuild() bool {
	for k, v := range p.r.mode.Fixed(p.r.role, p.r.need) {
		if was, listed := p.r.listed[k]; listed && was != v && p.r.mode.Kind(k).Rebuild {
			return true
		}
	}
	return false
}

// removeUnused removes the listed counted entries that no Service needs.
func (p *Plan[P, K, V]) removeUnused() {
	unused := make(map[K]bool)
	for k, n := range p.r.uses {
		if n == 0 {
			unused[k] = true
		}
	}
	if len(unused) == 0 {
		return
	}
	for _, s := range p.services {
		for _, k := range s.gains {
			delete(unused, k)
		}
	}
	for k := range unused {
		p.fixed = append(p.fixed, Change[K, V]{Op: Remove, Key: k})
	}
}

// compareFixed adds to the plan the difference between the installed entries that belong to no
// Service and those of Mode.Fixed.
func (p *Plan[P, K, V]) compareFixed(installed map[K]V) {
	r := p.r
	left := maps.Clone(installed)
	for k, v := range r.mode.Fixed(r.role, r.need) {
		was, there := left[k]
		delete(left, k)
		switch {
		case !there:
			p.fixed = append(p.fixed, Change[K, V]{Op: Add, Key: k, New: v})
		case was != v:
			p.fixed = append(p.fixed, Change[K, V]{Op: Replace, Key: k, Old: was, New: v})
		}
	}
	for k, v := range left {
		p.fixed = append(p.fixed, Change[K, V]{Op: Remove, Key: k, Old: v})
	}
	slices.SortStableFunc(p.fixed, func(a, b Change[K, V]) int { // for an order that is always the same
		return cmp.Compare(r.mode.Kind(a.Key).Label, r.mode.Kind(b.Key).Label)
	})
}

// RemovedUDP returns the UDP frontends that the kernel has and will not have after the plan.
func (p Plan[P, K, V]) RemovedUDP() (removed []netip.AddrPort) {
	mode, ok := p.r.mode.(FrontendMode[K])
	if !ok {
		return nil
	}
	add := func(changes []Change[K, V]) {
		for _, c := range changes {
			if c.Op != Remove {
				continue
			}
			if protocol, at, ok := mode.Frontend(c.Key); ok && protocol == sdk.UDP {
				removed = append(removed, at)
			}
		}
	}
	add(p.fixed)
	for _, s := range p.services {
		add(s.changes)
	}
	return removed
}

// Steps describes the plan, with one line for each fixed entry and each Service.
func (p Plan[P, K, V]) Steps() (steps []string) {
	say := func(format string, args ...any) {
		steps = append(steps, p.r.Name+": "+fmt.Sprintf(format, args...))
	}
	if p.rebuild {
		say("remove everything and write it again")
	}
	for _, op := range []Op{Add, Replace, Remove} {
		var labels []string
		for _, c := range p.fixed {
			if c.Op == op {
				labels = append(labels, p.r.mode.Kind(c.Key).Label)
			}
		}
		slices.Sort(labels)
		for _, label := range slices.Compact(labels) {
			say("%s %s", op, label)
		}
	}
	for _, s := range slices.SortedFunc(slices.Values(p.services), func(a, b *service[P, K, V]) int { return a.name.Compare(b.name) }) {
		count := [...]int{Add: len(s.gains), Replace: 0, Remove: len(s.drops)}
		for _, c := range s.changes {
			count[c.Op]++
		}
		var all []string
		for op, n := range count {
			if n > 0 {
				all = append(all, fmt.Sprintf("%s %d entries", Op(op), n))
			}
		}
		say("%s: %s", s.name, strings.Join(all, ", "))
	}
	return steps
}
