// SPDX-License-Identifier: Apache-2.0

package field

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// A Harm is a shell command that changes a dataplane's rules, as another program may do. Each rule that it adds contains
// a string of Theirs.
type Harm struct{ What, Command string }

// Theirs are strings by which a test distinguishes rules that Harms adds from those of a dataplane.
var Theirs = []string{"203.0.113.9", "THEIRS"}

// Harms returns the ways in which other programs change iptables rules. tool is the iptables program of the dataplane's
// backend. entry is the chain of table nat that all packets to Services pass, and chain is another chain of table nat
// whose first rule is the dataplane's.
func Harms(tool, entry, chain string) []Harm {
	const flush, remove = "TOOL -t nat -F; TOOL -t filter -F", "; TOOL -t nat -X || :; TOOL -t filter -X || :" // -X fails if the dataplane has repaired a chain
	all := []Harm{
		{"all chains are flushed", flush},
		{"all chains are flushed and deleted", flush + remove},
		{"a firewall replaces all rules by its own", flush + remove + "; TOOL -A INPUT -s 203.0.113.9 -p icmp -j ACCEPT; TOOL -t nat -A POSTROUTING -s 203.0.113.9 -j MASQUERADE"},
		{"a firewall restores its rules and flushes all others", `printf '*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n:THEIRS -\n-A INPUT -p 97 -j THEIRS\nCOMMIT\n*nat\n:PREROUTING ACCEPT\n:POSTROUTING ACCEPT\n-A POSTROUTING -s 203.0.113.9 -j MASQUERADE\nCOMMIT\n' | TOOL-restore`},
		{"a firewall restores empty tables", `printf '*nat\nCOMMIT\n*filter\n:INPUT ACCEPT\n-A FORWARD -d 203.0.113.9/32 -j DROP\nCOMMIT\n' | TOOL-restore`},
		{"a chain is flushed", "TOOL -t nat -F CHAIN"},
		{"the entry chain is flushed", "TOOL -t nat -F ENTRY"},
		{"a rule is deleted", "TOOL -t nat -D CHAIN 1"},
		{"a rule is deleted, and another table is changed", "TOOL -A INPUT -s 203.0.113.9 -j ACCEPT; TOOL -t nat -D CHAIN 1"},
		{"a rule is replaced", "TOOL -t nat -R CHAIN 1 -p tcp -m comment --comment theirs -j RETURN"},
		{"a rule is added to the entry chain", "TOOL -t nat -I ENTRY -p tcp --dport 80 -j RETURN"},
	}
	if _, err := exec.LookPath("nft"); err == nil && strings.HasSuffix(tool, "-nft") {
		all = append(all,
			Harm{"a rule that iptables cannot print is added to the entry chain", `nft insert rule ip nat ENTRY iifname '{ "wan0", "wan1" }' return`},
			Harm{"a table is deleted", "nft delete table ip nat"},
			Harm{"everything is deleted", "nft flush ruleset"})
	}
	words := strings.NewReplacer("TOOL-restore", tool+"-restore -w", "TOOL", tool+" -w", "ENTRY", entry, "CHAIN", chain)
	for i := range all {
		all[i].Command = words.Replace(all[i].Command)
	}
	return all
}

// Repairs runs each harm, and waits until d counts a repair and differs returns no error, which means that the rules are
// as before.
func Repairs(t *testing.T, d interface{ Report() sdk.Report }, differs func() error, harms ...Harm) {
	t.Helper()
	for _, h := range harms {
		t.Run(h.What, func(t *testing.T) {
			repaired := d.Report().Repaired
			if out, err := exec.Command("sh", "-e", "-c", h.Command).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", h.Command, err, out)
			}
			eventually.True(t, "a repair is counted", func() bool { return d.Report().Repaired > repaired })
			eventually.Succeeds(t, "the rules are as before", differs) // each IP family is repaired separately
		})
	}
}
