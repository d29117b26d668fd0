// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// Rewritten says what differs between the rules that a chain has and those that it is to have: what
// comes (+) and what goes (-), a rule a line, each indented.
func Rewritten(have, want []Rule) []string {
	coming, going := beyond(want, have), beyond(have, want)
	if len(coming)+len(going) == 0 {
		return []string{"  the same rules in another order"}
	}
	return append(listed("  + ", coming), listed("  - ", going)...)
}

// beyond are the rules of some that others do not have, or not as often.
func beyond(some, others []Rule) []Rule {
	has := make(map[Rule]int, len(others))
	for _, r := range others {
		has[r]++
	}
	return slices.DeleteFunc(slices.Clone(some), func(r Rule) bool {
		has[r]--
		return has[r] >= 0
	})
}

// mostListed is how many rules of one chain are named: one that was flushed may lack thousands.
const mostListed = 20

func listed(sign string, rules []Rule) []string {
	var all []string
	for _, r := range rules[:min(len(rules), mostListed)] {
		all = append(all, sign+string(r))
	}
	if more := len(rules) - mostListed; more > 0 {
		all = append(all, fmt.Sprintf("%sand %d more rules", sign, more))
	}
	return all
}

// Details are the steps of b and, below each that writes a chain which is there, the rules that
// come and go. have returns the rules of a chain, if it is there.
func (b Block) Details(have func(ID) ([]Rule, bool)) []string {
	var all []string
	steps := b.Steps() // begins with a line for each of b.Whole
	for i, c := range b.Whole {
		all = append(all, steps[i])
		if rules, there := have(c.ID); there {
			all = append(all, Rewritten(rules, c.Rules)...)
		}
	}
	return append(all, steps[len(b.Whole):]...)
}

// Of names the IP family of details at the beginning of each step.
func Of(family sdk.Family, details []string) []string {
	named := make([]string, len(details))
	for i, line := range details {
		if named[i] = line; !strings.HasPrefix(line, " ") {
			named[i] = family.String() + ": " + line
		}
	}
	return named
}
