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
			n := flushed(t, at, "protect: auto")
			if m := n.rested(); m.Mode != "nftables" || m.Last == nil || m.Last.Error != "" {
				t.Errorf("%s serves; the swap ended with %+v", m.Mode, m.Last)
			}
			n.traceless("iptables")
		})
	}
	t.Run("unprotected", func(t *testing.T) {
		n := flushed(t, "verifying/verify", "protect: never")
		m := n.rested()
		if m.Last == nil || m.Mode == "iptables" && !strings.Contains(m.Last.Error, "does not serve what it was told") {
			t.Errorf("%s serves; the swap ended with %+v", m.Mode, m.Last)
		}
	})
}

// flushed swaps from iptables to nftables, and flushes at a stage.
func flushed(t *testing.T, at, protect string) *node {
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
	n.lists()
	return n
}
