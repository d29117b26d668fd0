// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// An outline has the names of some chains, and the rules of the others: of all while
// they are few, else of those that every table has.
func TestKernelOutline(t *testing.T) {
	needsRoot(t)
	tool, err := Open(t.Context(), sdk.IPv4, NFT)
	if err != nil {
		t.Skip("needs the backend: ", err)
	}
	t.Cleanup(func() {
		runs(t, "iptables-nft", "-F")
		runs(t, "iptables-nft", "-X")
	})
	for _, line := range []string{"-N OURS-1", "-N THEIRS", "-A OURS-1 -j DROP", "-A INPUT -j OURS-1", "-A THEIRS -j OURS-1"} {
		runs(t, "iptables-nft", strings.Fields(line)...)
	}
	outline := func() Tables {
		t.Helper()
		found, err := tool.Outline(t.Context(), "filter", func(id ID) bool { return strings.HasPrefix(id.Chain, "OURS-") })
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	few := outline()
	rules, there := few[ID{"filter", "OURS-1"}]
	if !there || len(rules) > 0 || !few.Has(ID{"filter", "INPUT"}, "-j OURS-1") || !few.Has(ID{"filter", "THEIRS"}, "-j OURS-1") {
		t.Errorf("where others have few chains it is %q", few)
	}
	s := new(Script)
	s.Begin("filter")
	for i := range fewOthers {
		s.Declare(fmt.Sprintf("THEIRS-%d", i))
	}
	s.Commit()
	if err := tool.Restore(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	many := outline()
	if _, there := many[ID{"filter", "THEIRS"}]; there || !many.Has(ID{"filter", "INPUT"}, "-j OURS-1") {
		t.Errorf("where others have many chains it is %q", many)
	}
	none, err := tool.Outline(t.Context(), "filter", func(ID) bool { return false })
	if err != nil || len(none) > 0 {
		t.Errorf("where nothing is ours it is %q, %v", none, err)
	}
}

// With legacy it has all rules of a table with a chain of ours, and makes no table.
func TestKernelOutlineLegacy(t *testing.T) {
	needsRoot(t)
	tool, err := Open(t.Context(), sdk.IPv4, Legacy)
	if err != nil {
		t.Skip("needs the backend: ", err)
	}
	outline := func(table string) Tables {
		t.Helper()
		found, err := tool.Outline(t.Context(), table, func(id ID) bool { return strings.HasPrefix(id.Chain, "OURS-") })
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for _, line := range []string{"-N OURS-1", "-N THEIRS", "-A OURS-1 -j DROP", "-A INPUT -j ACCEPT", "-A INPUT -j OURS-1", "-A OUTPUT -j THEIRS"} {
		runs(t, "iptables-legacy", strings.Fields(line)...)
	}
	t.Cleanup(func() {
		runs(t, "iptables-legacy", "-F")
		runs(t, "iptables-legacy", "-X")
	})
	want := Tables{{"filter", "OURS-1"}: {"-j DROP"}, {"filter", "INPUT"}: {"-j ACCEPT", "-j OURS-1"}, {"filter", "OUTPUT"}: {"-j THEIRS"}, {"filter", "FORWARD"}: {}, {"filter", "THEIRS"}: {}}
	if got := outline("filter"); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("the outline is %q, want %q", got, want)
	}
	before := legacyTables(sdk.IPv4)
	if slices.Contains(before, "security") {
		t.Skip("the table that must not be made is there: security")
	}
	if got := outline("security"); len(got) > 0 || !slices.Equal(legacyTables(sdk.IPv4), before) {
		t.Errorf("of a table that is not there it is %q; tables now %q", got, legacyTables(sdk.IPv4))
	}
}

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
