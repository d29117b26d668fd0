// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/test/eventually"
	"github.com/pointsman/pointsman/test/field"
)

// Chains of other programs that drop forwarded packets or packets to the node are found, with their position. Chains
// that accept packets to Services before that, and chains at other hooks, are not reported.
func TestKernelFindsDrops(t *testing.T) {
	onKernel(t, func(k kernel) {
		if k.protect != "never" {
			k.Skip("the option says nothing of other programs' tables")
		}
		for _, c := range []struct{ rules, want string }{
			{"add table inet fw; add chain inet fw f { type filter hook forward priority 5; policy drop; }",
				"chain f of table inet fw drops what is forwarded, by its policy"},
			{"add table ip fw; add chain ip fw i { type filter hook input priority 0; }; add rule ip fw i tcp dport 22 accept; add rule ip fw i counter log drop",
				"chain i of table ip fw drops what is sent to the node, by rule 2 (handle 3)"},
			{"add table inet fw; add chain inet fw f { type filter hook forward priority 5; }; add rule inet fw f reject with icmpx admin-prohibited",
				"chain f of table inet fw drops what is forwarded, by rule 1 (handle 2)"},
			{"add table inet pointsman; add chain inet pointsman f { type filter hook forward priority 5; policy drop; }",
				"chain f of table inet pointsman drops what is forwarded, by its policy"},
			{"add table inet fw; add chain inet fw f { type filter hook forward priority 5; policy drop; }; add rule inet fw f ct state established accept; add rule inet fw f ct status dnat counter accept", ""},
			{"add table inet fw; add chain inet fw f { type filter hook forward priority 5; }; add rule inet fw f accept; add rule inet fw f drop", ""},
			{"add table inet fw; add chain inet fw f { type filter hook forward priority 5; }; add rule inet fw f iifname eth7 drop", ""},
			{"add table inet fw; add chain inet fw o { type filter hook output priority 5; policy drop; }; add chain inet fw c; add rule inet fw c drop", ""},
			{"add table ip6 fw; add chain ip6 fw f { type filter hook forward priority 5; policy drop; }", ""},
			{"iptables-nft -A INPUT -j REJECT", "chain INPUT of table ip filter drops what is sent to the node, by rule 1"},
			{"iptables-nft -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT; iptables-nft -A INPUT -j REJECT", "chain INPUT of table ip filter drops what is sent to the node, by rule 2"},
			{"iptables-nft -P FORWARD DROP", "chain FORWARD of table ip filter drops what is forwarded, by its policy"},
			{"iptables-nft -P FORWARD DROP; iptables-nft -A FORWARD -m conntrack --ctstate ESTABLISHED,DNAT -j ACCEPT", ""},
		} {
			k.flush()
			if strings.HasPrefix(c.rules, "iptables") {
				if out, err := exec.Command("sh", "-e", "-c", c.rules).CombinedOutput(); err != nil {
					k.Fatalf("%s (apt-get install iptables): %v: %s", c.rules, err, out)
				}
			} else {
				k.nft(c.rules)
			}
			if got := k.drops(); c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want)) {
				k.Errorf("%s:\n%q, want %q", c.rules, got, c.want)
			}
		}
	})
}

// If iptables' FORWARD chain drops packets, as Docker configures it, all packets of the scenarios that should pass do
// pass, and only those that need it are masqueraded. Without the programs of iptables, the drop is reported: before a
// swap as its impact, and afterwards as degraded.
func TestKernelForwardDrops(t *testing.T) {
	g := field.Testbed(t)
	onKernel(t, func(k kernel) {
		if k.protect != "never" {
			k.Skip("the option says nothing of other programs' tables")
		}
		for _, backend := range []string{"nft", "legacy"} {
			k.Run(backend, func(t *testing.T) {
				k := kernel{t, t.TempDir(), k.protect}
				var programs []string
				iptables := func(args ...string) (out string) {
					k.Helper()
					for _, program := range programs {
						b, err := exec.Command(program, args...).CombinedOutput()
						if err != nil {
							k.Fatalf("%s %q: %v: %s", program, args, err, b)
						}
						out += string(b)
					}
					return out
				}
				for _, program := range []string{"iptables-" + backend, "ip6tables-" + backend} {
					path, err := exec.LookPath(program)
					if err != nil {
						k.Skip(err)
					}
					programs = append(programs, path)
				}
				iptables("-P", "FORWARD", "DROP")
				defer iptables("-P", "FORWARD", "ACCEPT")
				s := sdktest.InProcess(Description, func() sdk.Dataplane { return New(k.dir) })
				s.Options, s.Testbed, s.Only = k.options(), g, regexp.MustCompile("^C0[12]/scenario/(node-port|load|external)").MatchString
				sdktest.Conform(k.T, s)

				p := k.start()
				k.sync(p, k.place(g, sticking).Update(1))
				k.role(p, sdk.Standby)
				if r := p.Report(); r.SwapImpact != "" {
					k.Errorf("a swap would be refused: %s", r.SwapImpact)
				}
				if out := iptables("-S", "FORWARD"); strings.Count(out, "-j KUBE-NFT-FORWARD") != 2 {
					k.Errorf("want one jump in each family: %s", out)
				}
				if _, err := p.Cleanup(k.Context(), sdk.Leftovers{}); err != nil {
					k.Fatal(err)
				}
				p.die()
				if out := iptables("-S"); strings.Contains(out, "KUBE-") {
					k.Errorf("Cleanup left %s", out)
				}

				path := os.Getenv("PATH")
				k.Setenv("PATH", k.TempDir())
				defer os.Setenv("PATH", path)
				p = k.start()
				drops := func(text string) bool { return strings.HasPrefix(text, "chain FORWARD of") }
				if r := p.Report(); !drops(r.SwapImpact) || r.Degraded != nil {
					k.Errorf("without programs, before the first update: %+v", r)
				}
				k.sync(p, k.place(g, sticking).Update(1))
				k.role(p, sdk.Active)
				if r := p.Report(); len(r.Degraded) != 2 || !drops(r.Degraded[0]) || r.SwapImpact != "" || !strings.Contains(strings.Join(r.Notes, "\n"), "KUBE-MARK-MASQ") {
					k.Errorf("without programs, while it serves: %+v", r)
				}
				k.Setenv("PATH", path)
				eventually.True(k, "the programs exist, and no drop is reported", func() bool { return len(p.Report().Degraded) == 0 })
			})
		}
	})
}

func (k kernel) drops() []string {
	k.Helper()
	own := nfTable{ip: ipOf(sdk.IPv4), log: slog.New(slog.DiscardHandler)}
	all, forward, err := own.drops(k.Context())
	if err != nil {
		k.Fatal(err)
	}
	all = append(all, forward...)
	slices.Sort(all)
	return all
}

// The report has a note about such a chain for as long as the chain exists: before this dataplane serves, and while it
// serves.
func TestKernelNotesDrops(t *testing.T) {
	g := field.Testbed(t)
	onKernel(t, func(k kernel) {
		k.nft("add table inet fw; add chain inet fw f { type filter hook forward priority 5; policy drop; }")
		p := k.start()
		noted := func() bool { return strings.Contains(strings.Join(p.Report().Notes, "\n"), "chain f of table inet fw") }
		if !noted() {
			k.Errorf("no note before the first update: %q", p.Report().Notes)
		}
		k.sync(p, k.place(g, sticking).Update(1))
		k.role(p, sdk.Active)
		k.nft("delete", "table", "inet", "fw")
		eventually.True(k, "the note is gone", func() bool { return !noted() })
		k.nft("add table inet fw; add chain inet fw f { type filter hook forward priority 5; policy drop; }")
		eventually.True(k, "the chain is noted", noted)
		if got := len(p.Report().Notes); got != 1 {
			k.Errorf("want one note for both families: %q", p.Report().Notes)
		}
	})
}
