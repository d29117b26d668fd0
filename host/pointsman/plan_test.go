// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
)

// TestWayBack: kube-proxy takes over the rules of its own mode on the way back, so the text mentions cleanup only if
// that would not remove kube-proxy's rules.
func TestWayBack(t *testing.T) {
	const noCleanup, swap = "do not run pointsman cleanup", "pointsman mode swap "
	for _, c := range []struct{ from, to, says, saysNot string }{
		{"ipvs", "ipvs", "run pointsman-dataplane-ipvs cleanup once its rules exist; " + noCleanup, swap},
		{"ipvs", "iptables", swap + "ipvs; then end", "chains that kube-proxy has not"},
		{"iptables", "iptables", noCleanup, swap},
		{"iptables", "ipvs", swap + "iptables; then end", "pointsman-dataplane-ipvs"},
		{"nftables", "nftables", "run pointsman cleanup once its tables exist", noCleanup},
	} {
		if text := wayBack(c.from, c.to); !strings.Contains(text, c.says) || strings.Contains(text, c.saysNot) {
			t.Errorf("from %s to %s: it must say %q, and not %q: %s", c.from, c.to, c.says, c.saysNot, text)
		}
	}
}

// TestUnusedOptions: kube-proxy's settings for its ipvs mode are listed if another mode serves.
func TestUnusedOptions(t *testing.T) {
	options := []byte(`{"scheduler": "wlc", "strictARP": true, "tcpTimeout": "10m", "udpTimeout": "0s", "excludeCIDRs": []}`)
	want := []string{"ipvs.scheduler: no effect in mode iptables", "ipvs.strictARP: no effect in mode iptables", "ipvs.tcpTimeout: no effect in mode iptables"}
	if got := unusedOptions("ipvs", "iptables", options); !slices.Equal(got, want) {
		t.Errorf("the lines are %q", got)
	}
	for _, c := range [][3]string{{"ipvs", "ipvs", string(options)}, {"ipvs", "iptables", `{"scheduler": "rr"}`}, {"ipvs", "iptables", ""}, {"iptables", "ipvs", `{"localhostNodePorts": true}`}} {
		if got := unusedOptions(c[0], c[1], []byte(c[2])); len(got) > 0 {
			t.Errorf("from %s to %s with %s: %q", c[0], c[1], c[2], got)
		}
	}
}
