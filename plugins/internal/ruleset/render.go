// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
)

// This file has chains follow what owners want: at once what is added, and what nat loses;
// after nat has changed what filter loses.

// A chain is what one chain should be, and which owner wants it: the zero owner, if it
// serves all.
type chain[K comparable] struct {
	owner K
	level int    // below the root of its tree; 0: it is a root, or in no tree
	text  string // the rules, a line each
}

// as is c by its name, as a block has it.
func (c chain[K]) as(id iptables.ID) iptables.Chain {
	return iptables.Chain{ID: id, Rules: iptables.Split(c.text), Level: c.level}
}

// ends are the rules before and after those that a tree has in its root.
type ends struct{ head, tail []iptables.Rule }

// replace adds what d has, and then takes out what old has and d has not.
func (s *Set[K]) replace(owner K, old, d Desired) {
	stays := make(map[iptables.ID]bool, len(d.Chains))
	for _, c := range d.Chains {
		stays[c.ID] = true
		s.write(owner, c)
	}
	caught := make(map[place]bool, len(d.Entries))
	for _, e := range d.Entries {
		caught[e.place()] = true
		s.hang(e)
	}
	for _, e := range old.Entries {
		if s.config.Trees[e.In].Shared || !caught[e.place()] {
			s.cut(e)
		}
	}
	for _, c := range old.Chains {
		if !stays[c.ID] {
			s.part(owner, c.ID)
		}
	}
}

// hang adds e to its tree.
func (s *Set[K]) hang(e Entry) {
	if s.config.Trees[e.In].Shared {
		s.shares[e.place()]++
	}
	delete(s.removed, e.place())
	s.Tree(e.In).Put(e.Entry)
}

// cut takes e out of its tree, or has it leave, unless another owner wants it too.
func (s *Set[K]) cut(e Entry) {
	if s.config.Trees[e.In].Shared {
		if s.shares[e.place()]--; s.shares[e.place()] > 0 {
			return
		}
		delete(s.shares, e.place())
	}
	if s.Tree(e.In).Root().Table == "filter" {
		s.removed[e.place()] = e
		return
	}
	s.Tree(e.In).Drop(e.Entry)
}

// part takes a chain of owner's out, or has it leave, unless it is another owner's now.
func (s *Set[K]) part(owner K, id iptables.ID) {
	switch {
	case s.chains[id].owner != owner:
	case id.Table == "filter":
		s.parting[id] = owner
	default:
		s.erase(id)
	}
}

// settle renders the trees that were touched, and takes out what leaves. It returns what
// the touched chains of filter should be while nat changes: what is new in them, and still
// all that leaves.
func (s *Set[K]) settle() (between map[iptables.ID]chain[K]) {
	s.render()
	between = make(map[iptables.ID]chain[K])
	for id := range s.touched {
		if c, ok := s.chains[id]; ok && id.Table == "filter" {
			between[id] = c
		}
	}
	for _, e := range s.removed {
		s.Tree(e.In).Drop(e.Entry)
	}
	for id, owner := range s.parting {
		if s.chains[id].owner == owner {
			s.erase(id)
		}
	}
	clear(s.removed)
	clear(s.parting)
	s.render()
	return between
}

// render writes the chains of the trees that were touched.
func (s *Set[K]) render() {
	var all K
	for i, t := range s.config.Trees {
		for _, c := range t.Changes() {
			if c.Gone {
				s.erase(c.ID)
				continue
			}
			if c.Level == 0 {
				c.Rules = slices.Concat(s.ends[i].head, c.Rules, s.ends[i].tail)
			}
			s.write(all, iptables.Chain{ID: c.ID, Rules: c.Rules, Level: c.Level})
		}
	}
}

func (s *Set[K]) write(owner K, c iptables.Chain) {
	delete(s.parting, c.ID)
	now := chain[K]{owner, c.Level, iptables.Join(c.Rules)}
	if old, ok := s.chains[c.ID]; ok && old == now {
		return
	}
	s.chains[c.ID] = now
	s.touched[c.ID] = true
}

func (s *Set[K]) erase(id iptables.ID) {
	if _, ok := s.chains[id]; ok {
		delete(s.chains, id)
		s.touched[id] = true
	}
}
