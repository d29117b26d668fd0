// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
		want     string // the prefix, or what the refusal says
	}{
		{"by its own name", map[string]string{"iptables-nft": "iptables v1.8.9 (nf_tables)"}, sdk.IPv4, NFT, "iptables-nft"},
		{"by the plain name", map[string]string{"iptables": "iptables v1.8.4 (legacy)"}, sdk.IPv4, Legacy, "iptables"},
		{"of IPv6", map[string]string{"ip6tables-legacy": "ip6tables v1.8.10 (legacy)"}, sdk.IPv6, Legacy, "ip6tables-legacy"},
		{"the plain name is the other backend", map[string]string{"iptables": "iptables v1.8.9 (nf_tables)"}, sdk.IPv4, Legacy, "there is no iptables-legacy in PATH"},
		{"of the other family", map[string]string{"iptables-nft": "iptables v1.8.9 (nf_tables)"}, sdk.IPv6, NFT, "there is no ip6tables-nft in PATH"},
		{"none", nil, sdk.IPv4, NFT, "install iptables 1.8.0 or later"},
		{"too old", map[string]string{"iptables": "iptables v1.6.2"}, sdk.IPv4, Legacy, `iptables: its version is "iptables v1.6.2", and 1.8.0 or later is needed`},
		{"old and new", map[string]string{"iptables": "iptables v1.6.2", "iptables-nft": "iptables v1.8.0 (nf_tables)"}, sdk.IPv4, NFT, "iptables-nft"},
		{"says nothing of a version", map[string]string{"iptables-nft": "BusyBox"}, sdk.IPv4, NFT, `iptables-nft: its version is "BusyBox"`},
	} {
		t.Run(c.why, func(t *testing.T) {
			programs(t, c.programs)
			tool, err := Open(t.Context(), c.family, c.backend)
			if err == nil {
				if tool.Prefix != c.want || tool.Backend != c.backend || tool.Family != c.family {
					t.Errorf("opened %+v, want %s", tool, c.want)
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

// choose returns the backend that the node uses: the one with Kubernetes' rules, then the one with more rules.
func TestChoose(t *testing.T) {
	for _, c := range []struct {
		why         string
		nft, legacy use
		plain, want Backend
	}{
		{"nothing", use{}, use{}, "", NFT},
		{"one", use{}, use{has: true}, "", Legacy},
		{"a kubelet's rules", use{true, 100, 0}, use{true, 3, 3}, "", Legacy},
		{"more rules", use{true, 1, 0}, use{true, 9, 0}, NFT, Legacy},
		{"as many", use{true, 5, 0}, use{true, 5, 0}, "", NFT},
		{"what other software runs", use{has: true}, use{has: true}, Legacy, Legacy},
		{"other software runs what we cannot", use{has: true}, use{}, Legacy, NFT},
		{"other software beside rules", use{true, 5, 0}, use{has: true}, Legacy, NFT},
		{"both", use{true, 9, 9}, use{true, 2, 2}, "", NFT},
	} {
		if got := choose(c.nft, c.legacy, c.plain); got != c.want {
			t.Errorf("%s: %s, want %s", c.why, got, c.want)
		}
	}
}

// look counts the rules of each backend, and creates no table.
func TestKernelLook(t *testing.T) {
	needsRoot(t)
	for _, backend := range []Backend{NFT, Legacy} {
		if _, err := Open(t.Context(), sdk.IPv4, backend); err != nil {
			t.Skip("needs both backends: ", err)
		}
	}
	before := legacyTables(sdk.IPv4)
	for _, c := range []struct {
		program string
		rules   int
		want    Backend
		mixed   bool
	}{{"", 0, NFT, false}, {"iptables-legacy", 1, Legacy, false}, {"iptables-nft", 2, NFT, true}} {
		if c.program != "" {
			runs(t, c.program, "-N", "KUBE-KUBELET-CANARY")
			t.Cleanup(func() {
				runs(t, c.program, "-F")
				runs(t, c.program, "-X")
			})
			for range c.rules {
				runs(t, c.program, "-A", "KUBE-KUBELET-CANARY", "-j", "RETURN")
			}
		}
		chosen, note, err := look(t.Context(), sdk.IPv4)
		if err != nil || chosen != c.want || (note != "") != c.mixed {
			t.Errorf("after %s: %s, %q, %v", c.program, chosen, note, err)
		}
		if after := legacyTables(sdk.IPv4); c.program == "" && !slices.Equal(after, before) {
			t.Errorf("legacy had the tables %q, and has %q", before, after)
		}
	}
}
