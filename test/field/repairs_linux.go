// SPDX-License-Identifier: Apache-2.0

package field

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// A Harm is what another program does to a dataplane's rules, by a shell command. Each rule that it adds contains one
// of Theirs.
type Harm struct{ What, Command string }

// Theirs are parts of the rules that Harms adds, which distinguish them from those of a dataplane.
var Theirs = []string{"203.0.113.9", "THEIRS"}

// Harms returns what other programs do to tables of iptables. tool is the iptables of the dataplane's backend; way is
// the chain of table nat through which everything is served, and chain another one there whose first rule is the
// dataplane's.
func Harms(tool, way, chain string) []Harm {
	const flush, remove = "TOOL -t nat -F; TOOL -t filter -F", "; TOOL -t nat -X || :; TOOL -t filter -X || :" // what was repaired meanwhile stays
	all := []Harm{
		{"all is flushed", flush},
		{"all is flushed and deleted", flush + remove},
		{"a firewall loads its own rules instead", flush + remove + "; TOOL -A INPUT -s 203.0.113.9 -p icmp -j ACCEPT; TOOL -t nat -A POSTROUTING -s 203.0.113.9 -j MASQUERADE"},
		{"a firewall reloads, by a restore that flushes", `printf '*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n:THEIRS -\n-A INPUT -p 97 -j THEIRS\nCOMMIT\n*nat\n:PREROUTING ACCEPT\n:POSTROUTING ACCEPT\n-A POSTROUTING -s 203.0.113.9 -j MASQUERADE\nCOMMIT\n' | TOOL-restore`},
		{"a firewall reloads, and has no rules", `printf '*nat\nCOMMIT\n*filter\n:INPUT ACCEPT\n-A FORWARD -d 203.0.113.9/32 -j DROP\nCOMMIT\n' | TOOL-restore`},
		{"a chain is emptied", "TOOL -t nat -F CHAIN"},
		{"the way in is emptied", "TOOL -t nat -F WAY"},
		{"a rule is deleted", "TOOL -t nat -D CHAIN 1"},
		{"a rule is deleted, and another table is changed", "TOOL -A INPUT -s 203.0.113.9 -j ACCEPT; TOOL -t nat -D CHAIN 1"},
		{"a rule is replaced", "TOOL -t nat -R CHAIN 1 -p tcp -m comment --comment theirs -j RETURN"},
		{"a rule is added to the way in", "TOOL -t nat -I WAY -p tcp --dport 80 -j RETURN"},
	}
	if _, err := exec.LookPath("nft"); err == nil && strings.HasSuffix(tool, "-nft") {
		all = append(all,
			Harm{"a rule that only nft prints is added to the way in", `nft insert rule ip nat WAY iifname '{ "wan0", "wan1" }' return`},
			Harm{"a table is deleted", "nft delete table ip nat"},
			Harm{"everything is deleted", "nft flush ruleset"})
	}
	words := strings.NewReplacer("TOOL-restore", tool+"-restore -w", "TOOL", tool+" -w", "WAY", way, "CHAIN", chain)
	for i := range all {
		all[i].Command = words.Replace(all[i].Command)
	}
	return all
}

// Repairs does each harm to what d serves, and waits until nothing differs from before and the repair is counted.
func Repairs(t *testing.T, d interface{ Report() sdk.Report }, differs func() error, harms ...Harm) {
	t.Helper()
	for _, h := range harms {
		t.Run(h.What, func(t *testing.T) {
			repaired := d.Report().Repaired
			if out, err := exec.Command("sh", "-e", "-c", h.Command).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", h.Command, err, out)
			}
			eventually.True(t, "a repair is counted", func() bool { return d.Report().Repaired > repaired })
			eventually.Succeeds(t, "all is as before", differs) // each family is repaired separately
		})
	}
}
