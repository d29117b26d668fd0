// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// programs sets PATH to a folder with these programs, each of which prints a line as its version.
func programs(t *testing.T, versions map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, line := range versions {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho '"+line+"'\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

func TestOpen(t *testing.T) {
	for _, c := range []struct {
		why      string
		programs map[string]string
		family   sdk.Family
		backend  Backend
		want     string // prefix and version; or what the refusal says
	}{
		{"by its own name", map[string]string{"iptables-nft": "iptables v1.8.9 (nf_tables)"}, sdk.IPv4, NFT, "iptables-nft 1.8.9"},
		{"by the plain name", map[string]string{"iptables": "iptables v1.8.4 (legacy)"}, sdk.IPv4, Legacy, "iptables 1.8.4"},
		{"of IPv6", map[string]string{"ip6tables-legacy": "ip6tables v1.8.10 (legacy)"}, sdk.IPv6, Legacy, "ip6tables-legacy 1.8.10"},
		{"the plain name is the other backend", map[string]string{"iptables": "iptables v1.8.9 (nf_tables)"}, sdk.IPv4, Legacy, "there is no iptables-legacy in PATH"},
		{"of the other family", map[string]string{"iptables-nft": "iptables v1.8.9 (nf_tables)"}, sdk.IPv6, NFT, "there is no ip6tables-nft in PATH"},
		{"none", nil, sdk.IPv4, NFT, "install iptables 1.8.0 or later"},
		{"too old", map[string]string{"iptables": "iptables v1.6.2"}, sdk.IPv4, Legacy, "iptables is version 1.6.2, and 1.8.0 or later is needed"},
		{"old and new", map[string]string{"iptables": "iptables v1.6.2", "iptables-nft": "iptables v1.8.0 (nf_tables)"}, sdk.IPv4, NFT, "iptables-nft 1.8.0"},
		{"says nothing of a version", map[string]string{"iptables-nft": "BusyBox"}, sdk.IPv4, NFT, "iptables-nft does not say its version"},
	} {
		t.Run(c.why, func(t *testing.T) {
			programs(t, c.programs)
			tool, err := Open(t.Context(), c.family, c.backend)
			if err == nil {
				if got := tool.Prefix + " " + tool.Version; got != c.want || tool.Backend != c.backend || tool.Family != c.family {
					t.Errorf("opened %s, of %s %s; want %s", got, tool.Family, tool.Backend, c.want)
				}
				return
			}
			var refusal *sdk.Refusal
			if !errors.As(err, &refusal) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("refused with %v, want a Refusal with %q", err, c.want)
			}
		})
	}
}

// Open ends with its context if a program hangs.
func TestOpenIsBounded(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "iptables-nft"), []byte("#!/bin/sh\nwhile :; do :; done\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, sdk.IPv4, NFT); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Open of a program that hangs: %v", err)
	}
}

// Choose returns the backend that the node uses: the one with Kubernetes' rules, then the one with more rules.
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

// Look counts the rules of each backend, and creates no table.
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
		t.Errorf("legacy had the tables %q, and has %q after Look", before, after)
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
