// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// SaveIf returns only tables that have one of the chains, and for nft prints no others.
func TestKernelSaveIf(t *testing.T) {
	needsRoot(t)
	for _, backend := range []Backend{NFT, Legacy} {
		t.Run(string(backend), func(t *testing.T) {
			tool, err := Open(t.Context(), sdk.IPv4, backend)
			if err != nil {
				t.Skip("needs the backend: ", err)
			}
			read := 0
			tool.Heard = func() { read++ }
			ours := func(id ID) bool { return id.Chain == "OURS" }
			program := tool.Prefix
			t.Cleanup(func() {
				for _, table := range []string{"nat", "filter"} {
					runs(t, program, "-w", "-t", table, "-F")
					runs(t, program, "-w", "-t", table, "-X")
				}
			})
			for _, table := range []string{"nat", "filter"} {
				runs(t, program, "-w", "-t", table, "-N", "THEIRS")
				runs(t, program, "-w", "-t", table, "-A", "OUTPUT", "-d", "192.0.2.1", "-j", "THEIRS")
			}
			none, err := tool.SaveIf(t.Context(), ours, "nat", "filter")
			if err != nil || len(none) > 0 || read > 0 && backend == NFT {
				t.Fatalf("without a chain of ours SaveIf printed tables %d times, and returned %q, %v", read, none, err)
			}
			runs(t, program, "-w", "-t", "nat", "-N", "OURS")
			runs(t, program, "-w", "-t", "nat", "-A", "OUTPUT", "-j", "OURS")
			one, err := tool.SaveIf(t.Context(), ours, "nat", "filter")
			if err != nil || !one.Has(ID{"nat", "OUTPUT"}, "-j OURS") {
				t.Errorf("with one it read %q, %v", one, err)
			}
			if _, there := one[ID{"nat", "OURS"}]; !there {
				t.Errorf("a chain without rules is missing from %q", one)
			}
			if _, there := one[ID{"filter", "OUTPUT"}]; there {
				t.Errorf("the table without one was read, too: %q", one)
			}
		})
	}
}
