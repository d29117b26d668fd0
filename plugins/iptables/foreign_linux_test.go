// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rulestest"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
)

// foreign creates objects of other programs: a chain whose name begins like ours, rules before and after our jumps,
// rules that jump to chains of ours, and a table of nft.
func (k kernel) foreign() {
	k.Helper()
	for _, program := range []string{"iptables-" + string(k.backend), "ip6tables-" + string(k.backend)} {
		for _, line := range []string{
			"-N KUBE-ROUTER-X", "-A KUBE-ROUTER-X -p 99 -j RETURN", "-A FORWARD -j KUBE-ROUTER-X",
			"-N KUBE-SERVICE-OF-OTHERS", "-A INPUT -p 98 -j KUBE-SERVICE-OF-OTHERS",
			"-A INPUT -p 97 -m comment --comment KUBE-SERVICES -j DROP",
			"-t nat -A POSTROUTING -o theirs -j MASQUERADE", "-t mangle -A PREROUTING -p 99 -j ACCEPT",
			"-N KUBE-FORWARD", "-N DOCKER-USER", "-A DOCKER-USER -j KUBE-FORWARD", "-A FORWARD -p 94 -j KUBE-FORWARD",
		} {
			k.run(program, strings.Fields(line)...)
		}
	}
	table := "add table inet theirs { chain c { type filter hook input priority 5; ip protocol 99 drop; }; }"
	if out, err := exec.Command("nft", table).CombinedOutput(); err == nil {
		k.Cleanup(func() { k.run("nft", "delete", "table", "inet", "theirs") })
	} else if k.backend == iptables.NFT && !errors.Is(err, exec.ErrNotFound) {
		k.Fatalf("nft %s: %v: %s", table, err, out) // a kernel with iptables-legacy alone has no such tables
	}
}

// foreignMarks creates foreign rules that jump to the chains that all dataplanes share, and these chains as a kubelet
// creates them.
func (k kernel) foreignMarks() {
	k.Helper()
	for _, program := range []string{"iptables-" + string(k.backend), "ip6tables-" + string(k.backend)} {
		for _, line := range []string{
			"-N KUBE-MARK-MASQ", "-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000", "-N CNI-HOSTPORT-SETMARK", "-N CNI-DN-0123456789abcdef", "-N MY-OWN",
			"-A CNI-HOSTPORT-SETMARK -m comment --comment portfwd -j KUBE-MARK-MASQ",
			"-A CNI-DN-0123456789abcdef -p tcp -m tcp --dport 99 -j KUBE-MARK-MASQ",
			"-A MY-OWN -p 96 -j KUBE-MARK-MASQ", "-A PREROUTING -p 95 -j KUBE-MARK-MASQ",
		} {
			k.run(program, append([]string{"-t", "nat"}, strings.Fields(line)...)...)
		}
	}
}

// notOurs returns everything on the node that is not ours, as text.
func (k kernel) notOurs() string {
	k.Helper()
	b := bytes.NewBufferString(k.foreignRules())
	if _, err := exec.LookPath("nft"); err == nil {
		if out, err := exec.Command("nft", "list", "table", "inet", "theirs").Output(); err == nil {
			b.Write(out)
		}
	}
	for _, path := range []string{sysctl.RouteLocalnet, netfilter + "nf_conntrack_tcp_timeout_established", netfilter + "nf_conntrack_udp_timeout"} {
		value, _ := os.ReadFile(path)
		fmt.Fprintf(b, "%s %s", path, value)
	}
	return b.String()
}

// foreignRules returns the chains that are not ours, with their rules except our jumps and kube-proxy's.
func (k kernel) foreignRules() string {
	k.Helper()
	var b strings.Builder
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		tables := k.tables(family)
		for _, id := range slices.SortedFunc(maps.Keys(tables), iptables.ID.Compare) {
			if isOurs(id) || rulestest.IsShared(id) {
				continue
			}
			fmt.Fprintf(&b, "%s %s\n", family, id)
			for _, r := range tables[id] {
				if !isOurJump(id, r) {
					fmt.Fprintln(&b, r)
				}
			}
		}
		program := map[sdk.Family]string{sdk.IPv4: "iptables-", sdk.IPv6: "ip6tables-"}[family]
		b.WriteString(k.run(program+string(k.backend), "-t", "mangle", "-S"))
	}
	return b.String()
}

// isOurJump reports whether a rule is a jump of one of our dataplanes or of kube-proxy: in a built-in chain, for all
// packets or all new connections, and with their comment.
func isOurJump(at iptables.ID, r iptables.Rule) bool {
	ours := isOurs(iptables.ID{Chain: r.Target()}) || r.Target() == "KUBE-POSTROUTING" || r.Target() == "KUBE-FIREWALL"
	plain := strings.HasPrefix(string(r), "-m comment") || strings.HasPrefix(string(r), "-m conntrack") || strings.HasPrefix(string(r), "-j ")
	return slices.Contains(builtIn, at.Chain) && ours && plain
}

// everything returns the rules of this backend, and the parameter route_localnet, as text.
func (k kernel) everything() string {
	k.Helper()
	var b strings.Builder
	for _, program := range []string{"iptables-", "ip6tables-"} {
		for _, table := range []string{"nat", "filter", "mangle"} {
			b.WriteString(k.run(program+string(k.backend), "-t", table, "-S"))
		}
	}
	return b.String() + sysctl.RouteLocalnet + " " + values(k, sysctl.RouteLocalnet)
}

// Foreign rules that jump to our chains stay unchanged when a Service is deleted, and after a cleanup, which reports the
// chains that it keeps for them. A jump to our chains from a built-in chain is foreign, too, unless it is our jump or
// kube-proxy's.
func TestKernelForeignRulesLeadToOurs(t *testing.T) {
	onKernel(t, func(k kernel) {
		k.foreign()
		k.foreignMarks()
		s := scenario(k.T, "cluster-ip")
		p := k.start()
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		own := clusterChain(s.Services[0].Name)
		k.run("iptables-"+string(k.backend), "-t", "nat", "-A", "MY-OWN", "-p", "93", "-j", own)
		before := k.foreignRules()
		stays := func(after string) {
			k.Helper()
			if now := k.foreignRules(); now != before {
				k.Fatalf("after %s, the foreign rules are\n%s\nand were\n%s", after, now, before)
			}
		}
		k.sync(p, sdk.Update{From: 1, To: 2, Delete: []sdk.Name{s.Services[0].Name}})
		stays("a Service was deleted")
		if rules := k.tables(sdk.IPv4)[nat(own)]; len(rules) > 0 {
			k.Errorf("%s, to which a foreign rule jumps, should be empty and has %q", own, rules)
		}
		k.sync(p, sdk.Update{From: 2, To: 3, Set: s.Services})
		k.want(s, sdk.Active)
		for _, l := range []sdk.Leftovers{{KubeProxy: true, DryRun: true}, {}, {KubeProxy: true}} {
			gone, err := p.Cleanup(k.Context(), l)
			if err != nil {
				k.Fatal(err)
			}
			said := strings.Join(gone, "\n")
			says := strings.Contains(said, "keep nat "+own+", empty: a rule of MY-OWN leads to it") &&
				strings.Contains(said, "keep filter KUBE-FORWARD, empty: a rule of DOCKER-USER leads to it")
			if removed := l != (sdk.Leftovers{KubeProxy: true}); says != removed { // the last cleanup finds these chains empty
				k.Errorf("Cleanup with %+v reports\n%s", l, said)
			}
			stays(fmt.Sprintf("cleaning up %+v", l))
		}
		left := k.tables(sdk.IPv4)
		for id, rules := range left {
			if isOurs(id) && len(rules) > 0 {
				k.Errorf("Cleanup left %s with %q", id, rules)
			}
		}
		if lacks := rulestest.LacksShared(left, 14); len(lacks) > 0 { // they are the kubelet's, and foreign rules jump to them
			k.Errorf("after Cleanup, the shared chains lack %q", lacks)
		}
	})
}

// builtIn lists the built-in chains in which we have jumps.
var builtIn = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}
