// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// foreign makes what others may have on a node: a chain whose name begins as ours
// do, rules of users above and below ours, and a table of nft's own.
func (k kernel) foreign() {
	k.Helper()
	for _, program := range []string{"iptables-" + string(k.backend), "ip6tables-" + string(k.backend)} {
		for _, line := range []string{
			"-N KUBE-ROUTER-X", "-A KUBE-ROUTER-X -p 99 -j RETURN", "-A FORWARD -j KUBE-ROUTER-X",
			"-N KUBE-SERVICE-OF-OTHERS", "-A INPUT -p 98 -j KUBE-SERVICE-OF-OTHERS",
			"-A INPUT -p 97 -m comment --comment KUBE-SERVICES -j DROP",
			"-t nat -A POSTROUTING -o theirs -j MASQUERADE", "-t mangle -A PREROUTING -p 99 -j ACCEPT",
		} {
			k.run(program, strings.Fields(line)...)
		}
	}
	table := "add table inet theirs { chain c { type filter hook input priority 5; ip protocol 99 drop; }; }"
	if out, err := exec.Command("nft", table).CombinedOutput(); err == nil {
		k.Cleanup(func() { k.run("nft", "delete", "table", "inet", "theirs") })
	} else if k.backend == iptables.NFT && !errors.Is(err, exec.ErrNotFound) {
		k.Fatalf("nft %s: %v: %s", table, err, out) // a kernel with legacy alone has no such tables
	}
}

// notOurs is everything on the node that is not ours, as text.
func (k kernel) notOurs() string {
	k.Helper()
	var b strings.Builder
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		tables := k.tables(family)
		for _, id := range slices.SortedFunc(maps.Keys(tables), iptables.ID.Compare) {
			if isOurs(id.Chain) {
				continue
			}
			fmt.Fprintf(&b, "%s %s\n", family, id)
			for _, r := range tables[id] {
				if !isOurs(r.Target()) {
					fmt.Fprintln(&b, r)
				}
			}
		}
		program := map[sdk.Family]string{sdk.IPv4: "iptables-", sdk.IPv6: "ip6tables-"}[family]
		b.WriteString(k.run(program+string(k.backend), "-t", "mangle", "-S"))
	}
	if _, err := exec.LookPath("nft"); err == nil {
		if out, err := exec.Command("nft", "list", "table", "inet", "theirs").Output(); err == nil {
			b.Write(out)
		}
	}
	for _, path := range []string{routeLocalnet, netfilter + "nf_conntrack_tcp_timeout_established", netfilter + "nf_conntrack_udp_timeout"} {
		value, _ := os.ReadFile(path)
		fmt.Fprintf(&b, "%s %s", path, value)
	}
	return b.String()
}

// everything is all that this backend and nft show, and whether the kernel routes
// 127.0.0.0/8, as text. Counters, and tables that nobody has anything in, are left out.
func (k kernel) everything() string {
	k.Helper()
	var b strings.Builder
	for _, program := range []string{"iptables-", "ip6tables-"} {
		for _, table := range []string{"nat", "filter", "mangle"} {
			b.WriteString(k.run(program+string(k.backend), "-t", table, "-S"))
		}
	}
	if _, err := exec.LookPath("nft"); err == nil {
		for line := range strings.Lines(k.run("nft", "list", "tables")) {
			if !strings.Contains(line, " nat") && !strings.Contains(line, " filter") && !strings.Contains(line, " mangle") {
				b.WriteString(k.run("nft", append([]string{"list"}, strings.Fields(line)...)...))
			}
		}
	}
	routed, err := os.ReadFile(routeLocalnet)
	if err != nil {
		k.Fatal(err)
	}
	fmt.Fprintf(&b, "%s %s", routeLocalnet, routed)
	return b.String()
}

// settle waits until nobody changes anything for a moment.
func (k kernel) settle() {
	k.Helper()
	before := ""
	k.eventually("nobody writes", func() bool {
		now := k.everything()
		same := now == before
		before = now
		time.Sleep(300 * time.Millisecond)
		return same
	})
}
