// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// TestWalk checks which base chains packets pass, and in which order.
func TestWalk(t *testing.T) {
	node := netip.MustParseAddr("192.0.2.10")
	base := func(word string, hook uint32, priority int32, nat bool, age uint64, path Path) Base {
		return Base{Of: word, Hook: hook, Priority: priority, NAT: nat, Age: [2]uint64{age, 1}, At: func(p Packet) ([]Path, error) {
			some := path
			if some.Chance, some.Mark = 1, p.Mark; !some.Translated {
				some.To = p.Destination()
			}
			if some.Verdict == "" {
				some.Verdict = Accept
			}
			untracked := map[bool]string{true: "untracked"}[p.Untracked]
			some.Steps = []Step{{Chain: "c", Rule: strings.Trim(p.In+" "+untracked, " "), Matched: true}}
			return []Path{some}, nil
		}}
	}
	to := func(addr string) Path { return Path{Translated: true, To: netip.MustParseAddrPort(addr)} }
	pre, in, out := uint32(nftnl.PreRouting), uint32(nftnl.Input), uint32(nftnl.Output)
	for _, tt := range []struct {
		what, in string
		bases    []Base
		want     string // base chains in order, and the end of the path
	}{
		{"later first", "eth0", []Base{base("old", pre, 0, false, 1, Path{}), base("new", pre, 0, false, 2, Path{}), base("legacy", pre, 0, false, 0, Path{})},
			"new(eth0) old(eth0) legacy(eth0) = ACCEPT 10.96.0.1:80"},
		{"nat is called at its own priority", "eth0", []Base{base("nat", pre, -150, true, 1, to("10.0.0.1:80")), base("filter", pre, -120, false, 1, Path{}), base("raw", pre, -300, false, 1, Path{})},
			"raw(eth0 untracked) filter(eth0) nat(eth0) = ACCEPT 10.0.0.1:80"},
		{"one translation", "eth0", []Base{base("first", pre, -101, true, 1, to("10.0.0.1:80")), base("second", pre, -100, true, 2, to("10.0.0.2:80"))},
			"first(eth0) = ACCEPT 10.0.0.1:80"},
		{"to the node itself", "eth0", []Base{base("pre", pre, -100, true, 1, to("192.0.2.10:80")), base("in", in, 0, false, 1, Path{Verdict: Drop}), base("late", in, 10, false, 1, Path{})},
			"pre(eth0) in(eth0) = DROP 192.0.2.10:80"},
		{"from the node to itself", "", []Base{base("out", out, -100, true, 1, to("192.0.2.10:80")), base("pre", pre, -100, true, 1, to("10.0.0.2:80")), base("raw", pre, -300, false, 1, Path{}), base("in", in, 0, false, 1, Path{})},
			"out() raw(lo) in(lo) = ACCEPT 192.0.2.10:80"},
		{"something else decides", "eth0", []Base{base("pre", pre, 0, false, 1, Path{Then: "IPVS"}), base("late", pre, 1, false, 1, Path{Verdict: Drop})},
			"pre(eth0) = ACCEPT 10.96.0.1:80, then IPVS"},
	} {
		n := Node{Bases: tt.bases}
		Sort(n.Bases)
		paths, err := n.Walk(Packet{Protocol: "tcp", In: tt.in, To: netip.MustParseAddrPort("10.96.0.1:80"), Local: func(a netip.Addr) bool { return a == node }})
		if err != nil || len(paths) != 1 {
			t.Fatalf("%s: %v, %v", tt.what, paths, err)
		}
		got := ""
		for _, s := range paths[0].Steps {
			got += s.Of + "(" + s.Rule + ") "
		}
		got += "= " + string(paths[0].Verdict) + " " + paths[0].To.String()
		if paths[0].Then != "" {
			got += ", then " + paths[0].Then
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
	}
}
