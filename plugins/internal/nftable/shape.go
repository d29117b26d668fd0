// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"maps"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// A Rule is its expressions.
type Rule []nftnl.Expr

// A Chain is its rules.
type Chain struct {
	Name  string
	Hook  *nftnl.Hook // nil: other chains lead to it
	Rules []Rule
}

// A Shape is what differs in sets and chains: those that are new or other than they were, and
// the names of those that go.
type Shape struct {
	Sets   []nftnl.Set
	Made   []Chain // that are not there, or not at their hook
	filled []Chain // whose rules differ
	gone   []string
	unused []string // sets
	afresh bool     // the table is removed first, with all that is in it
	take   bool     // nothing differs, but the table is to become this process's own
}

// makes reports whether a chain that goes is made anew, at another hook.
func (s Shape) makes(name string) bool {
	return slices.ContainsFunc(s.Made, func(c Chain) bool { return c.Name == name })
}

// A seen is a chain as the kernel has it: as it was read, or as it was written.
type seen struct {
	Chain
	read []nftnl.Observed // its rules; only if it was read
	raw  bool
}

func (s seen) is(c Chain) bool {
	if !s.raw {
		return slices.EqualFunc(s.Rules, c.Rules, func(a, b Rule) bool { return slices.Equal(a, b) })
	}
	return slices.EqualFunc(s.read, c.Rules, func(o nftnl.Observed, r Rule) bool { return o.Is(r) })
}

func (s seen) at(c Chain) bool {
	return s.Hook == nil && c.Hook == nil || s.Hook != nil && c.Hook != nil && *s.Hook == *c.Hook
}

// compare notes which chains differ. One that was read and does not is known from now on.
func (s *Shape) compare(have map[string]seen, desired []Chain) {
	left := maps.Clone(have)
	for _, c := range desired {
		was, there := have[c.Name]
		delete(left, c.Name)
		switch {
		case !there:
			s.Made = append(s.Made, c)
		case !was.at(c):
			s.gone = append(s.gone, c.Name)
			s.Made = append(s.Made, c)
		case !was.is(c):
			s.filled = append(s.filled, c)
		case was.raw:
			have[c.Name] = seen{Chain: c}
		}
	}
	s.gone = append(s.gone, slices.Sorted(maps.Keys(left))...)
}
