// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// older has, by table, what old releases of kube-proxy left: chains that no present release creates, chains to which no
// rule jumps any more, and chains that it shares with the kubelet.
var older = map[string]string{
	"nat": `:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-XLB-4LVCYZMTA5CQO6SX - [0:0]
:KUBE-SEP-4LVCYZMTA5CQO6SX - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-MARK-DROP - [0:0]
:KUBE-PROXY-CANARY - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j KUBE-XLB-4LVCYZMTA5CQO6SX
-A KUBE-XLB-4LVCYZMTA5CQO6SX -j KUBE-SEP-4LVCYZMTA5CQO6SX
-A KUBE-SEP-4LVCYZMTA5CQO6SX -p tcp -m tcp -j DNAT --to-destination 10.180.0.1:8080
-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000
`,
	"filter": `:KUBE-FIREWALL - [0:0]
:KUBE-PROXY-CANARY - [0:0]
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
`,
	"mangle": ":KUBE-PROXY-CANARY - [0:0]\n",
}

// leave writes what an old kube-proxy left, with additional lines for one table.
func (k kernel) leave(table, more string) {
	k.Helper()
	for name, text := range older {
		if name == table {
			text += more
		}
		k.restore("*" + name + "\n" + text + "COMMIT\n")
	}
	if err := openAccounts(); err != nil {
		k.Log(err) // the kernel has no nfacct accounts
	}
	if err := os.WriteFile(sysctl.RouteLocalnet, []byte("1"), 0o644); err != nil {
		k.Fatal(err)
	}
}

// Rules of kube-proxy show no role of this dataplane, even though it takes them over. Its own rules do.
func TestKernelShowsItsOwnRole(t *testing.T) {
	onKernel(t, func(k kernel) {
		k.leave("", "")
		shows := func(p *plugin, role sdk.Role) {
			k.Helper()
			k.eventually("the shown role is "+role.String(), func() bool { return p.Report().Shown == role })
		}
		p := k.start()
		shows(p, sdk.Absent)
		k.sync(p, scenario(k.T, "cluster-ip").Update(1)) // in the role that kube-proxy's jumps imply
		shows(p, sdk.Active)
		p.die()
		shows(k.start(), sdk.Active)
	})
}

// Cleanup also removes what old releases of kube-proxy left, and resets route_localnet if kube-proxy had set it.
func TestKernelCleansUpAfterOlderKubeProxies(t *testing.T) {
	onKernel(t, func(k kernel) {
		k.foreign()
		clean := k.everything()
		k.leave("", "")
		gone, err := New(k.dir).Cleanup(k.Context(), sdk.Leftovers{KubeProxy: true})
		if err != nil {
			k.Fatal(err)
		}
		if now := k.everything(); now != clean {
			k.Errorf("Cleanup left\n%s\nand before kube-proxy there was\n%s\nCleanup removed\n%s", now, clean, strings.Join(gone, "\n"))
		}
		if counting() {
			k.Error("Cleanup left nfacct accounts")
		}
		k.flush()
		clean = k.everything()
		k.restore("*filter\n" + strings.Replace(older["filter"], ":KUBE-PROXY-CANARY - [0:0]\n", "", 1) + "COMMIT\n") // no other chain of the table is ours
		if err := os.WriteFile(sysctl.RouteLocalnet, []byte("1"), 0o644); err != nil {
			k.Fatal(err)
		}
		gone, err = New(k.dir).Cleanup(k.Context(), sdk.Leftovers{KubeProxy: true})
		if now := k.everything(); err != nil || now != clean {
			k.Errorf("Cleanup left\n%s\nand before kube-proxy there was\n%s\nCleanup removed\n%s\n%v", now, clean, strings.Join(gone, "\n"), err)
		}
	})
}

// Chains that kube-proxy shares with other programs stay while these use them: a chain with rules of the kubelet
// (together with the guard in it), and a chain to which a foreign rule jumps. A cleanup that is not asked to remove
// what kube-proxy left keeps both.
func TestKernelCleanupLeavesWhatIsShared(t *testing.T) {
	const theirs = "-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP\n"
	for _, c := range []struct {
		why, table, more string
		kubeProxy        bool
		stays            []string
	}{
		{"a rule of the kubelet's", "filter", theirs, true, []string{"filter KUBE-FIREWALL"}},
		{"a foreign rule jumps there", "nat", ":THEIRS - [0:0]\n-A THEIRS -j KUBE-MARK-DROP\n", true, []string{"nat KUBE-MARK-DROP"}},
		{"without KubeProxy", "", "", false, []string{"filter KUBE-FIREWALL", "nat KUBE-MARK-DROP", "filter " + canary, "nat " + canary}},
	} {
		t.Run(c.why, func(t *testing.T) {
			onKernel(t, func(k kernel) {
				k.leave(c.table, c.more)
				before := k.tables(sdk.IPv4)
				if _, err := New(k.dir).Cleanup(k.Context(), sdk.Leftovers{KubeProxy: c.kubeProxy}); err != nil {
					k.Fatal(err)
				}
				after := k.tables(sdk.IPv4)
				for _, name := range c.stays {
					table, chain, _ := strings.Cut(name, " ")
					id := iptables.ID{Table: table, Chain: chain}
					if _, there := after[id]; !there || iptables.Join(after[id]) != iptables.Join(before[id]) {
						k.Errorf("%s is %q, and was %q", id, after[id], before[id])
					}
				}
				routed, err := os.ReadFile(sysctl.RouteLocalnet)
				if err != nil {
					k.Fatal(err)
				}
				if _, guarded := after[filter("KUBE-FIREWALL")]; !guarded && string(routed) != "0\n" {
					k.Error("the guard was removed, but the kernel still routes 127.0.0.0/8")
				} else if guarded && string(routed) != "1\n" {
					k.Error("the guard exists, but the kernel no longer routes 127.0.0.0/8")
				}
			})
		})
	}
}

// TestKernelBackendChange checks a session that writes to the other backend because the option was changed while no
// host ran. Once its rules serve, it removes the rules of the former backend, both in the same process and in a new
// one. Foreign rules there stay, and so do the chains that all dataplanes share if another one holds them.
func TestKernelBackendChange(t *testing.T) {
	onKernel(t, func(k kernel) {
		former := kernel{k.T, iptables.Legacy, k.dir}
		if k.backend == former.backend {
			former.backend = iptables.NFT
		}
		if _, err := iptables.Open(k.Context(), sdk.IPv4, former.backend); err != nil {
			k.Skip("needs both backends: ", err)
		}
		former.flush()
		k.Cleanup(former.flush)
		former.foreign()
		rules := func() string { text, _, _ := strings.Cut(former.everything(), sysctl.RouteLocalnet); return text }
		clean := rules()
		s := scenario(k.T, "node-port")
		for _, c := range []struct {
			why    string
			begins func(*plugin) *plugin
			beside string // name of another dataplane that holds the shared chains
		}{
			{"the same process", func(p *plugin) *plugin {
				if _, err := p.Configure(k.Context(), sdk.Setup{Options: k.options()}); err != nil {
					k.Fatal(err)
				}
				return p
			}, ""},
			{"a new process beside another dataplane", func(p *plugin) *plugin { p.die(); return k.start() }, "userspace"},
		} {
			k.flush()
			p := former.start()
			former.sync(p, s.Update(1))
			former.role(p, sdk.Active)
			former.want(s, sdk.Active)
			if c.beside != "" {
				k.addHolder(c.beside)
			}
			p = c.begins(p)
			k.sync(p, s.Update(1))
			if now := rules(); now == clean {
				k.Errorf("%s: Standby removed the rules in %s that serve", c.why, former.backend)
			}
			k.role(p, sdk.Active)
			k.want(s, sdk.Active)
			p.die()
			now := rules()
			if c.beside == "" && now != clean {
				k.Errorf("%s: %s has\n%s\nand had before this dataplane\n%s", c.why, former.backend, now, clean)
			}
			if shared := strings.Contains(now, "KUBE-MARK-MASQ"); shared != (c.beside != "") || strings.Contains(now, "KUBE-NODEPORTS") {
				k.Errorf("%s: %s has\n%s", c.why, former.backend, now)
			}
		}
	})
}

// addHolder makes another dataplane a holder of the chains that all dataplanes share.
func (k kernel) addHolder(name string) {
	k.Helper()
	l, err := ledger.Open(k.dir)
	if err != nil {
		k.Fatal(err)
	}
	share, err := l.Share(k.Context(), masquerade.Mark)
	if err != nil {
		k.Fatal(err)
	}
	share.Add(name)
	if err := errors.Join(share.Save(), share.Close()); err != nil {
		k.Fatal(err)
	}
}
