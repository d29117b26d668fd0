// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// Cut empties many removed chains before it removes the first, also if all fit one piece.
func TestManyAreEmptiedFirst(t *testing.T) {
	b := Block{Table: "nat"}
	for i := range manyRemoved + 1 {
		b.Remove = append(b.Remove, inNat(fmt.Sprint("KUBE-SEP-", i)))
	}
	cut := Plan{b}.Cut(Limit{math.MaxInt, math.MaxInt}, byName)
	if len(cut) != 2 || len(cut[0][0].Whole) != len(b.Remove) || len(cut[0][0].Remove) > 0 || len(cut[1][0].Remove) != len(b.Remove) {
		t.Errorf("%d removed chains are in %d pieces", len(b.Remove), len(cut))
	}
	b.Remove = b.Remove[:manyRemoved]
	if few := (Plan{b}).Cut(Limit{math.MaxInt, math.MaxInt}, byName); len(few) != 1 {
		t.Errorf("%d removed chains are in %d pieces", len(b.Remove), len(few))
	}
}

// No part that Limit.Cut returns exceeds the limit, except a single chain, and the chains keep their order.
func TestLimitCut(t *testing.T) {
	var chains []Chain
	for i := range 300 {
		chains = append(chains, Chain{ID: inNat(fmt.Sprint("KUBE-SEP-", i)), Rules: make([]Rule, i%7*20)})
	}
	chains[100].Rules = make([]Rule, 5000)
	limit := Limit{Chains: 20, Lines: 1000}
	var all []Chain
	for _, part := range limit.Cut(chains) {
		lines := 0
		for _, c := range part {
			lines += 1 + len(c.Rules)
		}
		if len(part) > limit.Chains || len(part) > 1 && lines > limit.Lines {
			t.Errorf("a piece has %d chains with %d lines", len(part), lines)
		}
		all = append(all, part...)
	}
	if !slices.EqualFunc(all, chains, func(a, b Chain) bool { return a.ID == b.ID }) {
		t.Errorf("of %d chains %d are written, or in another order", len(chains), len(all))
	}
}

func inNat(chain string) ID { return ID{"nat", chain} }

// byName is the same rank for all chains.
func byName(Chain) int { return 0 }
