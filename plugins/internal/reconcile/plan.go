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

// A Plan is what changes the installed entries into the desired ones.
type Plan[P Piece[P], K, V comparable] struct {
	r        *Reconciler[P, K, V]
	rebuild  bool
	fixed    []Change[K, V]
	services []*service[P, K, V]
	scratch  []Change[K, V]
	linked   int // so many of the services, the first ones, exchange entries and are written in one batch
}

// A service is the part of a plan that changes one Service.
type service[P Piece[P], K, V comparable] struct {
	name    sdk.Name
	to      P
	changes []Change[K, V]
	gains   []K                 // counted entries that the Service begins to need,
	drops   []K                 // and that it does not need any more
	peers   []*service[P, K, V] // which take over entries of it, or lose entries to it
	counted bool                // Reconciler.uses has the counted entries of its installed piece
}

func (s *service[P, K, V]) isEmpty() bool { return len(s.changes)+len(s.gains)+len(s.drops) == 0 }

// join makes s and t succeed or fail together.
func (s *service[P, K, V]) join(t *service[P, K, V]) {
	if !slices.Contains(s.peers, t) {
		s.peers, t.peers = append(s.peers, t), append(t.peers, s)
	}
}

// Plan returns the difference between the installed and the desired entries: of all Services after a List, and else
// of those that were touched. Each plan must be applied before the next is made.
func (r *Reconciler[P, K, V]) Plan() Plan[P, K, V] {
	p := Plan[P, K, V]{r: r}
	if r.listed != nil {
		p.compareAll()
	} else {
		p.compareTouched()
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

// requires notes that an entry of a container is or becomes installed.
func (r *Reconciler[P, K, V]) requires(container string) {
	if container != "" && !r.need[container] {
		r.need[container], r.refix = true, true
	}
}

// compareTouched compares the pieces of the Services that were touched.
func (p *Plan[P, K, V]) compareTouched() {
	r := p.r
	for name := range r.touched {
		had, want := r.installed[name], r.desired[name]
		s := &service[P, K, V]{name: name, to: want}
		if !want.Equal(had) {
			r.diff(s, had)
		}
		if s.isEmpty() {
			r.install(s) // one copy for both
			continue
		}
		p.services = append(p.services, s)
	}
	p.link()
	if r.refix {
		p.compareFixed(r.fixed)
	}
}

// diff adds to s what changes the entries of its installed piece into those of its desired one.
func (r *Reconciler[P, K, V]) diff(s *service[P, K, V], had P) {
	old := make(map[K]V)
	uses := make(map[K]bool)
	r.mode.Entries(s.name, had, func(k K, v V) {
		if r.mode.Kind(k).Counted {
			uses[k] = true
		} else {
			old[k] = v
		}
	})
	r.mode.Entries(s.name, s.to, func(k K, v V) {
		kind := r.mode.Kind(k)
		r.requires(kind.Container)
		switch was, there := old[k]; {
		case kind.Counted && uses[k]:
			delete(uses, k)
		case kind.Counted:
			s.gains = append(s.gains, k)
		case !there:
			s.changes = append(s.changes, Change[K, V]{Op: Add, Key: k, New: v})
		case was != v:
			s.changes = append(s.changes, Change[K, V]{Op: Replace, Key: k, Old: was, New: v})
			delete(old, k)
		default:
			delete(old, k)
		}
	})
	if len(old)+len(uses) == 0 {
		return
	}
	r.mode.Entries(s.name, had, func(k K, v V) { // in the order of Entries, which is the same each time
		if _, left := old[k]; left {
			s.changes = append(s.changes, Change[K, V]{Op: Remove, Key: k, Old: v})
		} else if uses[k] {
			s.drops = append(s.drops, k)
		}
	})
}

// link merges the removal of an entry from one Service and its addition to another into one change, and joins both
// Services.
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
	gone := make(map[*service[P, K, V]]map[int]bool)
	for _, s := range p.services {
		for i, c := range s.changes {
			from, moves := removed[c.Key]
			if !moves || c.Op != Add {
				continue
			}
			s.changes[i] = Change[K, V]{Op: Replace, Key: c.Key, Old: from.of.changes[from.at].Old, New: c.New}
			if gone[from.of] == nil {
				gone[from.of] = make(map[int]bool)
			}
			gone[from.of][from.at] = true
			s.join(from.of)
		}
	}
	for s, at := range gone {
		var left []Change[K, V]
		for i, c := range s.changes {
			if !at[i] {
				left = append(left, c)
			}
		}
		s.changes = left
	}
}

// compareAll compares the listed entries with the entries of all desired pieces.
func (p *Plan[P, K, V]) compareAll() {
	r := p.r
	p.compareListed()
	if p.mustRebuild() {
		r.listed, r.installed = make(map[K]V), make(map[sdk.Name]P)
		clear(r.uses)
		clear(r.need)
		*p = Plan[P, K, V]{r: r, rebuild: true}
		p.compareListed()
	}
	rest := make(map[K]V)
	for k, v := range r.listed {
		rest[k] = v
	}
	r.listed = rest // a new map, because the old one has room for all entries
	p.compareFixed(rest)
}

// mustRebuild reports whether a listed entry has another value than it should, and cannot be changed in place.
func (p *Plan[P, K, V]) mustRebuild() bool {
	for k, v := range p.r.mode.Fixed(p.r.role, p.r.need) {
		if was, listed := p.r.listed[k]; listed && was != v && p.r.mode.Kind(k).Rebuild {
			return true
		}
	}
	return false
}

// compareListed adds the changes of Services to the plan. In r.listed it leaves the entries that no Service has.
func (p *Plan[P, K, V]) compareListed() {
	r := p.r
	for k := range r.listed {
		if r.mode.Kind(k).Counted {
			r.uses[k] = 0
			delete(r.listed, k)
		}
	}
	if len(r.installed) == 0 { // room for all at once
		r.installed = make(map[sdk.Name]P, len(r.desired))
	}
	taken := make(map[K]*service[P, K, V])         // the listed entries that a Service replaces
	served := make(map[sdk.Name]*service[P, K, V]) // the Services that change of those which are installed
	for name, want := range r.desired {
		had, is := r.installed[name]
		s := p.compareEntries(name, want, is && want.Equal(had))
		if s == nil {
			continue
		}
		p.services = append(p.services, s)
		if is {
			served[name] = s
		}
		for _, c := range s.changes {
			if c.Op == Replace {
				taken[c.Key] = s
			}
		}
	}
	for name, had := range r.installed {
		s := served[name]
		if _, wanted := r.desired[name]; !wanted {
			s = &service[P, K, V]{name: name}
			p.services = append(p.services, s)
		}
		if s != nil {
			p.compareInstalled(s, had, taken)
		}
	}
	p.services = slices.DeleteFunc(p.services, func(s *service[P, K, V]) bool {
		if !r.isListed(s) {
			return false
		}
		for _, k := range s.gains {
			r.uses[k]++
		}
		r.install(s)
		return true
	})
	p.removeUnused()
}

// isListed reports whether all entries of the desired piece of s were listed, whatever Mode.Parse made of them, and no
// others are to be removed.
func (r *Reconciler[P, K, V]) isListed(s *service[P, K, V]) bool {
	return len(s.changes)+len(s.drops) == 0 && !slices.ContainsFunc(s.gains, func(k K) bool {
		_, listed := r.uses[k]
		return !listed
	})
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

// compareEntries compares the entries of a desired piece with the listed ones. It returns nil if the piece is installed
// and nothing differs.
func (p *Plan[P, K, V]) compareEntries(name sdk.Name, want P, installed bool) *service[P, K, V] {
	r := p.r
	s := service[P, K, V]{name: name, to: want, counted: installed, changes: p.scratch[:0]}
	r.mode.Entries(name, want, func(k K, v V) {
		kind := r.mode.Kind(k)
		r.requires(kind.Container)
		if kind.Counted {
			if _, listed := r.uses[k]; listed && installed {
				r.uses[k]++
			} else {
				s.gains = append(s.gains, k)
			}
			return
		}
		was, listed := r.listed[k]
		delete(r.listed, k)
		switch {
		case !listed:
			s.changes = append(s.changes, Change[K, V]{Op: Add, Key: k, New: v})
		case was != v:
			s.changes = append(s.changes, Change[K, V]{Op: Replace, Key: k, Old: was, New: v})
		}
	})
	if installed && s.isEmpty() {
		r.installed[name] = want // one copy for both
		return nil
	}
	p.scratch, s.changes = s.changes, slices.Clone(s.changes)
	return &s
}

// compareInstalled adds to s what it loses of its installed piece. It links s with the Services that take over entries of it.
func (p *Plan[P, K, V]) compareInstalled(s *service[P, K, V], had P, taken map[K]*service[P, K, V]) {
	r := p.r
	r.mode.Entries(s.name, had, func(k K, _ V) {
		kind := r.mode.Kind(k)
		if kind.Counted {
			if _, listed := r.uses[k]; !listed || s.counted {
				return
			}
			r.uses[k]++
			if i := slices.Index(s.gains, k); i >= 0 {
				s.gains = slices.Delete(s.gains, i, i+1)
			} else {
				s.drops = append(s.drops, k)
			}
			return
		}
		if was, left := r.listed[k]; left {
			r.requires(kind.Container)
			s.changes = append(s.changes, Change[K, V]{Op: Remove, Key: k, Old: was})
			delete(r.listed, k)
		} else if by := taken[k]; by != nil && by != s {
			s.join(by)
		}
	})
}

// compareFixed adds to the plan what changes the installed entries of no Service into those of Mode.Fixed.
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
	slices.SortStableFunc(p.fixed, func(a, b Change[K, V]) int { // so that the same plan is written in the same order
		return cmp.Compare(r.mode.Kind(a.Key).Label, r.mode.Kind(b.Key).Label)
	})
	if r.listed != nil {
		r.fixed = installed
	}
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

// Steps describes the plan, a line for each fixed entry and each Service.
func (p Plan[P, K, V]) Steps() (steps []string) {
	say := func(format string, args ...any) {
		steps = append(steps, p.r.Name+": "+fmt.Sprintf(format, args...))
	}
	if p.rebuild {
		say("remove everything and write it again")
	}
	words := map[Op]string{Add: "add", Replace: "rewrite", Remove: "remove"}
	for _, op := range []Op{Add, Replace, Remove} {
		var labels []string
		for _, c := range p.fixed {
			if c.Op == op {
				labels = append(labels, p.r.mode.Kind(c.Key).Label)
			}
		}
		slices.Sort(labels)
		for _, label := range slices.Compact(labels) {
			say("%s %s", words[op], label)
		}
	}
	for _, s := range slices.SortedFunc(slices.Values(p.services), func(a, b *service[P, K, V]) int { return a.name.Compare(b.name) }) {
		say("%s: %s", s.name, p.describe(s))
	}
	return steps
}

// describe says how many entries of which kinds a Service gets and loses.
func (p Plan[P, K, V]) describe(s *service[P, K, V]) string {
	count, labels := make(map[Op]int), make(map[Op][]string)
	note := func(op Op, k K) {
		count[op]++
		if label := p.r.mode.Kind(k).Label; !slices.Contains(labels[op], label) {
			labels[op] = append(labels[op], label)
		}
	}
	for _, c := range s.changes {
		note(c.Op, c.Key)
	}
	for _, k := range s.gains {
		note(Add, k)
	}
	for _, k := range s.drops {
		note(Remove, k)
	}
	var all []string
	for _, op := range []Op{Remove, Replace, Add} {
		if count[op] > 0 {
			word := map[Op]string{Add: "add", Replace: "rewrite", Remove: "remove"}[op]
			all = append(all, fmt.Sprintf("%s %d entries (%s)", word, count[op], strings.Join(labels[op], ", ")))
		}
	}
	return strings.Join(all, ", ")
}
