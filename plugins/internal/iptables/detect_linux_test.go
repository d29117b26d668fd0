// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// The backend that is in use on the node wins: the one with Kubernetes' rules, then
// the one with more.
func TestChoose(t *testing.T) {
	type count = map[Backend]int
	for _, c := range []struct {
		why   string
		use   Use
		want  Backend
		mixed bool
	}{
		{"nothing", Use{}, NFT, false},
		{"a kubelet's rules", Use{Rules: count{NFT: 100, Legacy: 3}, Kube: count{Legacy: 3}}, Legacy, false},
		{"more rules", Use{Rules: count{NFT: 1, Legacy: 9}}, Legacy, false},
		{"as many", Use{Rules: count{NFT: 5, Legacy: 5}}, NFT, false},
		{"what other software runs", Use{Plain: Legacy, Has: map[Backend]bool{NFT: true, Legacy: true}}, Legacy, false},
		{"other software runs what we cannot", Use{Plain: Legacy, Has: map[Backend]bool{NFT: true}}, NFT, false},
		{"other software beside rules", Use{Plain: Legacy, Has: map[Backend]bool{NFT: true, Legacy: true}, Rules: count{NFT: 5}}, NFT, false},
		{"both", Use{Kube: count{NFT: 9, Legacy: 2}}, NFT, true},
	} {
		if got := c.use.Choose(); got != c.want || c.use.Mixed() != c.mixed {
			t.Errorf("%s: %s, mixed %t; want %s, %t", c.why, got, c.use.Mixed(), c.want, c.mixed)
		}
	}
}

// Looking finds what each backend has, and makes no table that was not there.
func TestKernelLook(t *testing.T) {
	needsRoot(t)
	for _, backend := range []Backend{NFT, Legacy} {
		if _, err := Open(t.Context(), sdk.IPv4, backend); err != nil {
			t.Skip("needs both backends: ", err)
		}
	}
	look := func() Use {
		t.Helper()
		use, err := Look(t.Context(), sdk.IPv4)
		if err != nil {
			t.Fatal(err)
		}
		return use
	}
	before := strings.Join(legacyTables(sdk.IPv4), " ")
	look()
	if after := strings.Join(legacyTables(sdk.IPv4), " "); after != before {
		t.Errorf("legacy had the tables %q, and after a look %q", before, after)
	}
	for _, c := range []struct {
		program string
		want    Backend
		mixed   bool
	}{{"iptables-legacy", Legacy, false}, {"iptables-nft", NFT, true}} {
		runs(t, c.program, "-N", "KUBE-KUBELET-CANARY")
		runs(t, c.program, "-A", "KUBE-KUBELET-CANARY", "-j", "RETURN")
		if c.want == NFT {
			runs(t, c.program, "-A", "KUBE-KUBELET-CANARY", "-j", "RETURN")
		}
		t.Cleanup(func() {
			runs(t, c.program, "-F")
			runs(t, c.program, "-X")
		})
		if use := look(); use.Choose() != c.want || use.Mixed() != c.mixed {
			t.Errorf("after %s: %+v", c.program, use)
		}
	}
}
