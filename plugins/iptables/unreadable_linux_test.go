// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"maps"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// native has rules that only nft can print, as other programs add them to the tables of iptables (k3s#8750, k3s#11415).
const native = `
table ip nat {
	chain PREROUTING { type nat hook prerouting priority dstnat; iifname { "wan0", "wan1" } tcp dport 8443 dnat to 192.0.2.7:443; }
	chain POSTROUTING { type nat hook postrouting priority srcnat; oifname { "wan0", "wan1" } masquerade; }
}
table ip filter {
	chain INPUT { type filter hook input priority filter; iifname { "wan0", "wan1" } drop; }
	chain FORWARD { type filter hook forward priority filter; iifname { "wan0", "wan1" } ct state new drop; }
}`

// nftRules returns the foreign part of the rule set, and the number of foreign rules that jump to each of our chains.
func (k kernel) nftRules() (foreign string, jumps map[string]int) {
	k.Helper()
	jumps = make(map[string]int)
	var rest strings.Builder
	table, chain := "", ""
	for line := range strings.Lines(k.run("nft", "-s", "list", "ruleset")) {
		switch words := strings.Fields(line); {
		case len(words) > 2 && words[0] == "table":
			table = words[1] + " " + words[2]
		case len(words) > 1 && words[0] == "chain":
			chain = words[1]
		}
		switch _, to, leads := strings.Cut(strings.TrimSpace(line), "jump KUBE-"); {
		case leads && !strings.HasPrefix(chain, "KUBE-"):
			jumps[table+" "+chain+" "+to]++
		case !strings.HasPrefix(chain, "KUBE-") && strings.Contains(line, "wan0"):
			rest.WriteString(chain + line)
		}
	}
	return rest.String(), jumps
}

// If iptables cannot print a chain, the plugin checks for each jump separately. So there is one jump of each kind,
// however often a process starts, and Cleanup finds all of them.
func TestKernelBesideRulesThatOnlyNFTPrints(t *testing.T) {
	onKernel(t, func(k kernel) {
		if k.backend != iptables.NFT {
			return // only nf_tables has such rules
		}
		k.run("nft", native)
		k.Cleanup(func() { k.run("nft", "flush", "ruleset") })
		before, _ := k.nftRules()
		s := scenario(k.T, "cluster-ip")
		var p *plugin
		for start := range 4 {
			p = k.start()
			k.sync(p, s.Update(1))
			k.role(p, sdk.Active)
			k.want(s, sdk.Active)
			foreign, jumps := k.nftRules()
			if foreign != before {
				k.Errorf("after %d starts the foreign rules are\n%s", start+1, foreign)
			}
			for at, n := range jumps {
				if n != 1 {
					k.Errorf("after %d starts there are %d jumps: %s", start+1, n, at)
				}
			}
			if notes := strings.Join(p.Report().Notes, "\n"); start > 0 && !strings.Contains(notes, "nat PREROUTING") {
				k.Errorf("no note names the chain: %q", notes)
			}
			if start < 3 {
				p.die()
			}
		}
		k.run("iptables-nft", "-t", "nat", "-D", "PREROUTING", "-m", "comment", "--comment", "kubernetes service portals", "-j", "KUBE-SERVICES")
		k.eventually("a deleted jump is restored", func() bool { return len(k.differences(s, sdk.Active)) == 0 })
		_, err := p.Cleanup(k.Context(), sdk.Leftovers{})
		if err != nil {
			k.Fatal(err)
		}
		if foreign, jumps := k.nftRules(); foreign != before || len(jumps) > 0 {
			k.Errorf("Cleanup left the jumps %v and the foreign rules\n%s", jumps, foreign)
		}
		if left := k.run("nft", "list", "ruleset"); strings.Contains(left, "KUBE-") {
			k.Errorf("Cleanup left\n%s", left)
		}
	})
}

// If iptables does not answer whether a jump exists, nothing is written to that chain, and a note names the chain.
func TestKernelWritesNoUncertainJump(t *testing.T) {
	onKernel(t, func(k kernel) {
		if k.backend != iptables.NFT {
			return // only nf_tables has such rules
		}
		k.run("nft", native)
		k.Cleanup(func() { k.run("nft", "flush", "ruleset") })
		k.runOnce()
		_, was := k.nftRules()
		k.replace(`case "$*" in *' -C PREROUTING '*) exit 4;; esac; exec REAL "$@"`, "iptables-nft")
		notes := k.runOnce()
		if _, now := k.nftRules(); !maps.Equal(now, was) {
			k.Errorf("the jumps were %v and are %v", was, now)
		}
		if !strings.Contains(notes, "nothing is written there") || !strings.Contains(notes, "PREROUTING") {
			k.Errorf("the notes are %q", notes)
		}
	})
}

// A jump that another version of the program prints differently is not added again (kubernetes#112477).
func TestKernelRecognizesJumpPrintedDifferently(t *testing.T) {
	onKernel(t, func(k kernel) {
		k.runOnce()
		program := "iptables-" + string(k.backend)
		was := k.run(program, "-t", "nat", "-S", "PREROUTING")
		k.replace(`REAL "$@" | sed 's/-m comment --comment "kubernetes service portals" -j/-m comment --text kubernetes -j/'`, program+"-save")
		k.runOnce()
		if now := k.run(program, "-t", "nat", "-S", "PREROUTING"); now != was {
			k.Errorf("the rules were\n%sand are\n%s", was, now)
		}
	})
}

// runOnce starts a process, makes it serve, kills it, and returns the notes of its report.
func (k kernel) runOnce() (notes string) {
	k.Helper()
	p := k.start()
	k.sync(p, scenario(k.T, "cluster-ip").Update(1))
	k.role(p, sdk.Active)
	defer p.die()
	return strings.Join(p.Report().Notes, "\n")
}
