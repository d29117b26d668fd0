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

// older is what kube-proxies of other releases left: chains that no present one makes,
// chains that nothing leads to any more, and what it shares with the kubelet.
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

// leave puts into the tables what an older kube-proxy left, with more in one of them.
func (k kernel) leave(table, more string) {
	k.Helper()
	for name, text := range older {
		if name == table {
			text += more
		}
		k.restore("*" + name + "\n" + text + "COMMIT\n")
	}
	if err := openAccounts(); err != nil {
		k.Log(err) // this kernel has none
	}
	if err := os.WriteFile(sysctl.RouteLocalnet, []byte("1"), 0o644); err != nil {
		k.Fatal(err)
	}
}

// The rules of a kube-proxy show no role of this dataplane, though it takes them over; its own do.
func TestKernelShowsItsOwnRole(t *testing.T) {
	onKernel(t, func(k kernel) {
		k.leave("", "")
		shows := func(p *plugin, role sdk.Role) {
			k.Helper()
			k.eventually("it shows "+role.String(), func() bool { return p.Report().Shown == role })
		}
		p := k.start()
		shows(p, sdk.Absent)
		k.sync(p, scenario(k.T, "cluster-ip").Update(1)) // in the role that kube-proxy's jumps mean
		shows(p, sdk.Active)
		p.die()
		shows(k.start(), sdk.Active)
	})
}

// What older kube-proxies left goes too, and the way in from outside to 127.0.0.0/8
// that one opened is shut.
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
			k.Errorf("left is\n%s\nand before kube-proxy there was\n%s\nremoved was\n%s", now, clean, strings.Join(gone, "\n"))
		}
		if counting() {
			k.Error("there are accounts left")
		}
	})
}

// What it shares with others stays while they use it: the chain in which a kubelet has
// rules of its own, with the guard in it, and the one that a foreign rule leads to.
// A cleanup without what kube-proxy left keeps both.
func TestKernelCleanupLeavesWhatIsShared(t *testing.T) {
	const theirs = "-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP\n"
	for _, c := range []struct {
		why, table, more string
		kubeProxy        bool
		stays            []string
	}{
		{"a rule of the kubelet's", "filter", theirs, true, []string{"filter KUBE-FIREWALL"}},
		{"a rule that leads there", "nat", ":THEIRS - [0:0]\n-A THEIRS -j KUBE-MARK-DROP\n", true, []string{"nat KUBE-MARK-DROP"}},
		{"not asked for", "", "", false, []string{"filter KUBE-FIREWALL", "nat KUBE-MARK-DROP", "filter " + canary, "nat " + canary}},
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
					k.Error("the guard is gone, and the kernel still routes 127.0.0.0/8")
				} else if guarded && string(routed) != "1\n" {
					k.Error("the guard stands, and the kernel no longer routes 127.0.0.0/8")
				}
			})
		})
	}
}

// TestKernelBackendIsLeft: a session that writes to the other backend, because the option changed while no
// host ran, removes the rules of the former one once its own serve, in the same process as in a new one.
// What is foreign there stays, and so does what all dataplanes share while another one holds it.
func TestKernelBackendIsLeft(t *testing.T) {
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
			beside string // another dataplane
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
				k.holds(c.beside)
			}
			p = c.begins(p)
			k.sync(p, s.Update(1))
			if now := rules(); now == clean {
				k.Errorf("%s: in Standby it removed what served by %s", c.why, former.backend)
			}
			k.role(p, sdk.Active)
			k.want(s, sdk.Active)
			p.die()
			now := rules()
			if c.beside == "" && now != clean {
				k.Errorf("%s: by %s there is\n%s\nand before this dataplane there was\n%s", c.why, former.backend, now, clean)
			}
			if shared := strings.Contains(now, "KUBE-MARK-MASQ"); shared != (c.beside != "") || strings.Contains(now, "KUBE-NODEPORTS") {
				k.Errorf("%s: by %s there is\n%s", c.why, former.backend, now)
			}
		}
	})
}

// holds has another dataplane hold what all of them share.
func (k kernel) holds(name string) {
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
