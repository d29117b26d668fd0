// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
)

// TestMoveSteps: on the way back kube-proxy takes over what its own mode has, so cleanup is only said where
// nothing of kube-proxy's would go with it; and it is said that a cleanup ends what virtual services carry.
func TestMoveSteps(t *testing.T) {
	const ends, noCleanup, swap = "virtual services still carry", "no pointsman cleanup", "pointsman mode swap "
	for _, c := range []struct {
		from, to string
		left     bool
		says     []string
		saysNot  []string
	}{
		{"ipvs", "ipvs", false, []string{noCleanup, "once its rules are there pointsman-dataplane-ipvs cleanup;"}, []string{"--kube-proxy", swap, ends}},
		{"ipvs", "iptables", true, []string{ends, "--mode iptables", swap + "ipvs; then end", noCleanup}, nil},
		{"iptables", "iptables", false, []string{noCleanup}, []string{"--kube-proxy", swap, ends}},
		{"iptables", "ipvs", true, []string{"pointsman cleanup --kube-proxy, for what is left over", swap + "iptables; then end", noCleanup}, []string{ends}},
		{"nftables", "nftables", true, []string{"once its tables are there pointsman cleanup"}, []string{noCleanup, swap, ends}},
	} {
		text := strings.Join(moveSteps(c.from, c.to, false, c.left), "\n")
		says := func(word string) bool { return strings.Contains(text, word) }
		if !(len(slices.DeleteFunc(slices.Clone(c.says), says)) == 0) || slices.ContainsFunc(c.saysNot, says) {
			t.Errorf("from %s to %s: it must say %q, and not %q; the steps are\n%s", c.from, c.to, c.says, c.saysNot, text)
		}
	}
}

// TestUnusedOptions: what kube-proxy's file has for its ipvs mode is named where another mode serves.
func TestUnusedOptions(t *testing.T) {
	options := []byte(`{"scheduler": "wlc", "strictARP": true, "tcpTimeout": "10m", "udpTimeout": "0s", "excludeCIDRs": []}`)
	want := []string{"ipvs.scheduler: no effect in mode iptables", "ipvs.strictARP: no effect in mode iptables", "ipvs.tcpTimeout: no effect in mode iptables"}
	if got := unusedOptions("ipvs", "iptables", options); !slices.Equal(got, want) {
		t.Errorf("it says %q", got)
	}
	for _, c := range [][3]string{{"ipvs", "ipvs", string(options)}, {"ipvs", "iptables", `{"scheduler": "rr"}`}, {"ipvs", "iptables", ""}, {"iptables", "ipvs", `{"localhostNodePorts": true}`}} {
		if got := unusedOptions(c[0], c[1], []byte(c[2])); len(got) > 0 {
			t.Errorf("from %s to %s with %s it says %q", c[0], c[1], c[2], got)
		}
	}
}
