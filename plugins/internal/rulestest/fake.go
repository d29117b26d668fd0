// SPDX-License-Identifier: Apache-2.0

// Package rulestest has what the tests of all dataplanes with iptables rules share: a kernel in memory
// (Fake) and the results of the oracle in terms of scenarios (Outcome). Only tests import it.
package rulestest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
)

// A Fake is an iptables.Kernel. It applies scripts block by block as iptables-restore and the kernel do, and
// refuses what they would refuse.
type Fake struct {
	Tables iptables.Tables
	Last   *iptables.Script // the last script that was restored
	Blocks int              // number of blocks that took effect

	// Refuse, if not nil, reports whether the kernel refuses a rule in a chain.
	Refuse func(iptables.ID, iptables.Rule) bool

	// Committed, if not nil, is called after a block took effect.
	Committed func()
}

// NewFake returns a kernel with the built-in chains, and the chains others without rules.
func NewFake(others ...iptables.ID) *Fake {
	f := &Fake{Tables: make(iptables.Tables)}
	for table, chains := range map[string]string{
		"nat": "PREROUTING INPUT OUTPUT POSTROUTING", "filter": "INPUT FORWARD OUTPUT", "mangle": "PREROUTING INPUT FORWARD OUTPUT POSTROUTING",
	} {
		for chain := range strings.FieldsSeq(chains) {
			f.Tables[iptables.ID{Table: table, Chain: chain}] = nil
		}
	}
	for _, id := range others {
		f.Tables[id] = nil
	}
	return f
}

// Save returns the named tables.
func (f *Fake) Save(ctx context.Context, tables ...string) (iptables.Tables, error) {
	all := make(iptables.Tables)
	for id, rules := range f.Tables {
		if slices.Contains(tables, id.Table) {
			all[id] = slices.Clone(rules)
		}
	}
	return all, ctx.Err()
}

// Restore applies a script.
func (f *Fake) Restore(ctx context.Context, s *iptables.Script) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.Last = s
	table, next := "", maps.Clone(f.Tables)
	cloned := make(map[iptables.ID]bool) // chains whose rules are not shared with f.Tables
	for line := range strings.Lines(s.String()) {
		line = strings.TrimSuffix(line, "\n")
		verb, rest, _ := strings.Cut(line, " ")
		chain, words, _ := strings.Cut(rest, " ")
		id, rule := iptables.ID{Table: table, Chain: chain}, iptables.Rule(words)
		refuse := func(format string, args ...any) error {
			return &iptables.LineError{Chain: id, Line: line, Why: fmt.Sprintf(format, args...)}
		}
		if verb[0] == '-' && !cloned[id] {
			if _, there := next[id]; !there && (verb != "-X" || table != "mangle") {
				return refuse("there is no %s", id)
			}
			next[id], cloned[id] = slices.Clone(next[id]), true
		}
		switch {
		case verb[0] == '*':
			table = verb[1:]
		case verb == "COMMIT":
			if from, to, lost := dangling(next); lost {
				id, line = iptables.ID{Table: table}, verb
				return refuse("a rule of %s leads to %s, which is not there", from, to)
			}
			f.Tables, next, cloned = next, maps.Clone(next), make(map[iptables.ID]bool)
			if f.Blocks++; f.Committed != nil {
				f.Committed()
			}
		case verb[0] == ':':
			id.Chain = verb[1:]
			next[id] = nil
			delete(cloned, id)
		case verb == "-X":
			delete(next, id)
			delete(cloned, id)
		case verb == "-D":
			i := slices.Index(next[id], rule)
			if i < 0 {
				return refuse("there is no such rule")
			}
			next[id] = slices.Delete(next[id], i, i+1)
		case f.Refuse != nil && f.Refuse(id, rule):
			return refuse("refused")
		case verb == "-I":
			next[id] = slices.Insert(next[id], 0, rule)
		default:
			next[id] = append(next[id], rule)
		}
	}
	return nil
}

// dangling returns a rule that leads to a KUBE- chain that does not exist.
func dangling(t iptables.Tables) (from, to iptables.ID, lost bool) {
	for id, rules := range t {
		for _, r := range rules {
			to := iptables.ID{Table: id.Table, Chain: r.Target()}
			if _, there := t[to]; strings.HasPrefix(to.Chain, "KUBE-") && !there {
				return id, to, true
			}
		}
	}
	return iptables.ID{}, iptables.ID{}, false
}

// sharedJump is the jump to the chains that all dataplanes share.
var sharedJump = iptables.Jump{
	At:   iptables.ID{Table: "nat", Chain: "POSTROUTING"},
	Rule: `-m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING`,
}

// IsShared reports whether a chain is one of those that all dataplanes share.
func IsShared(id iptables.ID) bool {
	return slices.ContainsFunc(masquerade.Chains(0), func(c iptables.Chain) bool { return c.ID == id })
}

// AddShared adds the chains that all dataplanes share, and the jump to them.
func AddShared(t iptables.Tables, bit uint8) {
	for _, c := range masquerade.Chains(bit) {
		t[c.ID] = c.Rules
	}
	t[sharedJump.At] = slices.Insert(slices.Clone(t[sharedJump.At]), 0, sharedJump.Rule)
}

// LacksShared names what tables lack of the chains that all dataplanes share, and of the jump to them.
func LacksShared(t iptables.Tables, bit uint8) (lacks []string) {
	for _, c := range masquerade.Chains(bit) {
		if rules, there := t[c.ID]; !there || !slices.Equal(rules, c.Rules) {
			lacks = append(lacks, c.ID.String())
		}
	}
	jumps := slices.DeleteFunc(slices.Clone(t[sharedJump.At]), func(r iptables.Rule) bool { return r.Target() != sharedJump.Rule.Target() })
	if !slices.Equal(jumps, []iptables.Rule{sharedJump.Rule}) {
		lacks = append(lacks, fmt.Sprintf("%s has the jumps %q", sharedJump.At, jumps))
	}
	return lacks
}
