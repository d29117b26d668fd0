// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Fake is a Kernel for tests. It applies scripts block by block as iptables-restore and the kernel do, and
// refuses what they would refuse.
type Fake struct {
	Tables Tables
	Last   *Script // the last script that was restored
	Blocks int     // number of blocks that took effect

	// Refuse, if not nil, reports whether the kernel refuses a rule in a chain.
	Refuse func(ID, Rule) bool

	// Committed, if not nil, is called after a block took effect.
	Committed func()
}

// NewFake returns a kernel with the built-in chains, and the chains others without rules.
func NewFake(others ...ID) *Fake {
	f := &Fake{Tables: make(Tables)}
	for table, chains := range map[string]string{
		"nat": "PREROUTING INPUT OUTPUT POSTROUTING", "filter": "INPUT FORWARD OUTPUT", "mangle": "PREROUTING INPUT FORWARD OUTPUT POSTROUTING",
	} {
		for chain := range strings.FieldsSeq(chains) {
			f.Tables[ID{table, chain}] = nil
		}
	}
	for _, id := range others {
		f.Tables[id] = nil
	}
	return f
}

// Save returns the named tables.
func (f *Fake) Save(ctx context.Context, tables ...string) (Tables, error) {
	all := make(Tables)
	for id, rules := range f.Tables {
		if slices.Contains(tables, id.Table) {
			all[id] = slices.Clone(rules)
		}
	}
	return all, ctx.Err()
}

// Restore applies a script.
func (f *Fake) Restore(ctx context.Context, s *Script) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.Last = s
	table, next := "", maps.Clone(f.Tables)
	cloned := make(map[ID]bool) // chains whose rules are not shared with f.Tables
	for line := range strings.Lines(s.String()) {
		line = strings.TrimSuffix(line, "\n")
		verb, rest, _ := strings.Cut(line, " ")
		chain, words, _ := strings.Cut(rest, " ")
		id, rule := ID{table, chain}, Rule(words)
		refuse := func(format string, args ...any) error {
			return &LineError{Chain: id, Line: line, Why: fmt.Sprintf(format, args...)}
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
			if from, to, lost := next.dangling(); lost {
				id, line = ID{Table: table}, verb
				return refuse("a rule of %s leads to %s, which is not there", from, to)
			}
			f.Tables, next, cloned = next, maps.Clone(next), make(map[ID]bool)
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
func (t Tables) dangling() (from, to ID, lost bool) {
	for id, rules := range t {
		for _, r := range rules {
			to := ID{id.Table, r.Target()}
			if _, there := t[to]; isKubeName(to.Chain) && !there {
				return id, to, true
			}
		}
	}
	return ID{}, ID{}, false
}

func isKubeName(chain string) bool { return strings.HasPrefix(chain, "KUBE-") }
