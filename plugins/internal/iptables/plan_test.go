// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"slices"
	"testing"
)

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
