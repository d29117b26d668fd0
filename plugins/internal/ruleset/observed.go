// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
)

// What is observed is what the kernel has, as far as it was read and written.

// Adopt takes tables for what was written: from now on only what differs is.
func (s *Set[K]) Adopt(t iptables.Tables) {
	clear(s.text)
	clear(s.standing)
	clear(s.held)
	clear(s.unread)
	clear(s.rules)
	for id, rules := range t {
		if s.config.Ours(id) {
			s.hold(id, iptables.Join(rules))
			continue
		}
		if why := t.Unsure(id); why != "" || t.Has(id, iptables.Unread) {
			s.unread[id] = why
		}
		for _, r := range rules {
			to := iptables.ID{Table: id.Table, Chain: r.Target()}
			switch j := (iptables.Jump{At: id, Rule: r}); {
			case !s.config.Ours(to):
			case j.Listed():
				s.standing[j]++
			default:
				s.held[to] = true
			}
		}
	}
	s.TouchAll()
}

// TouchAll has the next plan look at every chain.
func (s *Set[K]) TouchAll() {
	for id := range s.text {
		s.touched[id] = true
	}
	for id := range s.chains {
		s.touched[id] = true
	}
}

// Stands reports whether the kernel has j.
func (s *Set[K]) Stands(j iptables.Jump) bool { return s.standing[j] > 0 }

// Standing are the listed jumps to our chains that the kernel has. The map is the set's own:
// it is only read.
func (s *Set[K]) Standing() map[iptables.Jump]int { return s.standing }

// Notes say where our jumps are that the program cannot print.
func (s *Set[K]) Notes() (notes []string) {
	for id, why := range s.unread {
		if !slices.ContainsFunc(s.own, func(j iptables.Jump) bool { return j.At == id }) {
			continue
		}
		if why == "" {
			why = fmt.Sprintf("iptables cannot print %s (%s), where another program keeps rules of nf_tables; our jumps there are asked for one by one", id, s.Family())
		}
		notes = append(notes, why)
	}
	slices.Sort(notes)
	return notes
}

// Observed are the rules that the kernel has in a chain of ours, a line each, if the chain
// is there.
func (s *Set[K]) Observed(id iptables.ID) (text string, there bool) {
	text, there = s.text[id]
	return text, there
}

// ObservedAll are the chains of ours that the kernel has. The map is the set's own: it is
// only read.
func (s *Set[K]) ObservedAll() map[iptables.ID]string { return s.text }

// RuleCount is how many rules the kernel has in our chains of a table.
func (s *Set[K]) RuleCount(table string) int { return s.rules[table] }

// Behind adds to chains the observed chain id, and the chains of ours that it leads to,
// unless shared says that a chain serves others too.
func (s *Set[K]) Behind(chains []iptables.Chain, id iptables.ID, shared func(iptables.ID) bool) []iptables.Chain {
	text, ok := s.text[id]
	if !ok || shared(id) || slices.ContainsFunc(chains, func(c iptables.Chain) bool { return c.ID == id }) {
		return chains
	}
	rules := iptables.Split(text)
	chains = append(chains, iptables.Chain{ID: id, Rules: rules})
	for _, r := range rules {
		chains = s.Behind(chains, iptables.ID{Table: id.Table, Chain: r.Target()}, shared)
	}
	return chains
}

// Done notes that a plan was carried out.
func (s *Set[K]) Done(p Plan) {
	for _, block := range p {
		s.done(block)
	}
}

func (s *Set[K]) done(block iptables.Block) {
	for _, c := range block.Whole {
		if !s.config.Ours(c.ID) {
			continue // another's, emptied
		}
		text := iptables.Join(c.Rules)
		if c, ok := s.chains[c.ID]; ok && c.text == text {
			text = c.text // one copy for both
		}
		s.hold(c.ID, text)
	}
	for _, id := range block.Remove {
		s.lose(id)
	}
	for _, j := range block.Delete {
		if s.standing[j]--; s.standing[j] == 0 {
			delete(s.standing, j)
		}
	}
	for _, j := range block.Insert {
		s.standing[j]++
	}
}

// Settled notes that all plans were carried out.
func (s *Set[K]) Settled() {
	s.touched = make(map[iptables.ID]bool) // small again: to walk a map costs its largest size
	s.shrink()
}

// shrink makes the maps of chains anew when many have gone: a map keeps the size that it
// had when it was largest.
func (s *Set[K]) shrink() {
	n := max(len(s.text), len(s.chains))
	if s.largest = max(s.largest, n); 3*n > 2*s.largest {
		return
	}
	s.largest = n
	s.text, s.chains, s.desired = anew(s.text), anew(s.chains), anew(s.desired)
}

func anew[K comparable, V any](old map[K]V) map[K]V {
	m := make(map[K]V, len(old))
	maps.Copy(m, old)
	return m
}

// hold notes what the kernel has for chain id.
func (s *Set[K]) hold(id iptables.ID, text string) {
	s.rules[id.Table] += strings.Count(text, "\n") - strings.Count(s.text[id], "\n")
	s.text[id] = text
}

// lose notes that the kernel has no chain id.
func (s *Set[K]) lose(id iptables.ID) {
	s.rules[id.Table] -= strings.Count(s.text[id], "\n")
	delete(s.text, id)
}
