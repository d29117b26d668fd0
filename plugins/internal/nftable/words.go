// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"fmt"
	"slices"
	"strings"
)

// Steps are the plan for people, a line for each Service and each chain.
func (p Plan[P]) Steps() []string {
	var all []string
	say := func(format string, args ...any) {
		all = append(all, fmt.Sprintf("%s %s: ", p.table.Of, p.table.Name)+fmt.Sprintf(format, args...))
	}
	s := p.Shape
	if s.afresh {
		say("make the table anew")
	}
	for _, set := range s.Sets {
		say("add set %s", set.Name)
	}
	for _, c := range s.Made {
		say("add chain %s with %d rules", c.Name, len(c.Rules))
	}
	for _, c := range s.filled {
		say("rewrite chain %s with %d rules", c.Name, len(c.Rules))
	}
	for _, name := range slices.Concat(s.gone, s.unused) {
		say("remove %s", name)
	}
	if d := p.Fixed; len(d.Gone)+len(d.Come) > 0 {
		say("remove %d elements%s, add %d%s", len(d.Gone), setsOf(d.Gone), len(d.Come), setsOf(d.Come))
	}
	for _, c := range slices.SortedFunc(slices.Values(p.Changes), func(a, b *Change[P]) int { return a.Name.Compare(b.Name) }) {
		say("%s: remove %d elements%s, add %d%s", c.Name, len(c.Gone), setsOf(c.Gone), len(c.Come), setsOf(c.Come))
	}
	return all
}

// setsOf are the sets that elements are of, for people.
func setsOf(elements []Element) string {
	var names []string
	for _, e := range elements {
		if !slices.Contains(names, e.Set) {
			names = append(names, e.Set)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}
