// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"strings"
	"testing"
)

// TestRewritten: of the rules of a chain those are named that come and that go.
func TestRewritten(t *testing.T) {
	t.Parallel()
	var many []Rule
	for i := range mostListed + 3 {
		many = append(many, Words("-s", fmt.Sprintf("10.0.0.%d", i), "-j DROP"))
	}
	for name, c := range map[string]struct {
		have, want []Rule
		says       string
	}{
		"one is missing":       {[]Rule{"-j B"}, []Rule{"-j A", "-j B"}, "  + -j A"},
		"one is foreign":       {[]Rule{"-j A", "-j B"}, []Rule{"-j A"}, "  - -j B"},
		"one is there twice":   {[]Rule{"-j A", "-j A"}, []Rule{"-j A"}, "  - -j A"},
		"one is another":       {[]Rule{"-j A"}, []Rule{"-j B"}, "  + -j B\n  - -j A"},
		"the order is another": {[]Rule{"-j A", "-j B"}, []Rule{"-j B", "-j A"}, "  the same rules in another order"},
	} {
		if got := strings.Join(Rewritten(c.have, c.want), "\n"); got != c.says {
			t.Errorf("%s: %q; want %q", name, got, c.says)
		}
	}
	if got := Rewritten(nil, many); len(got) != mostListed+1 || got[mostListed] != "  + and 3 more rules" {
		t.Errorf("of %d rules: %q", len(many), got)
	}
}

// TestBlockDetails: a chain that is not there has no rules to compare with.
func TestBlockDetails(t *testing.T) {
	t.Parallel()
	flushed, missing := ID{"nat", "KUBE-SVC-A"}, ID{"nat", "KUBE-SVC-B"}
	b := Block{Table: "nat", Whole: []Chain{{ID: flushed, Rules: []Rule{"-j A"}}, {ID: missing, Rules: []Rule{"-j B"}}}, Remove: []ID{{"nat", "KUBE-SVC-C"}}}
	got := strings.Join(b.Details(func(id ID) ([]Rule, bool) { return nil, id == flushed }), "\n")
	if want := "write nat KUBE-SVC-A (1 rules)\n  + -j A\nwrite nat KUBE-SVC-B (1 rules)\nremove nat KUBE-SVC-C"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
