// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"strings"
	"testing"
)

// TestKernelRulesetFlushed flushes all of nf_tables at a stage of a swap, under load. The old mode serves by the legacy
// tables, which this does not affect; the new one by a table that only its owner may change. No connection fails.
func TestKernelRulesetFlushed(t *testing.T) {
	for _, at := range []string{"verifying/verify", "cutting/retire", "proving/prove", "draining/drain"} {
		t.Run(at, func(t *testing.T) {
			n := swapAndFlush(t, at, "protect: auto")
			if m := n.waitForRest(); m.Mode != "nftables" || m.Last == nil || m.Last.Error != "" {
				t.Errorf("%s serves; the swap ended with %+v", m.Mode, m.Last)
			}
			n.expectNothingLeft("iptables")
		})
	}
	t.Run("unprotected", func(t *testing.T) {
		n := swapAndFlush(t, "verifying/verify", "protect: never")
		m := n.waitForRest()
		if m.Last == nil || m.Mode == "iptables" && !strings.Contains(m.Last.Error, "does not serve what was sent") {
			t.Errorf("%s serves; the swap ended with %+v", m.Mode, m.Last)
		}
	})
}

// swapAndFlush swaps from iptables to nftables, and flushes at a stage.
func swapAndFlush(t *testing.T, at, protect string) *node {
	n := newNode(t, "iptables")
	n.options, n.protect = "backend: legacy", protect
	n.configureDrain("iptables", at)
	n.startAt(at)
	l := n.newLoad()
	n.ask("nftables")
	n.waitAtFailpoint(at)
	n.nft("flush ruleset")
	n.resume()
	n.waitForDecision(l)
	l.done("nft flush ruleset at " + at + ", " + protect)
	n.expectListable()
	return n
}
