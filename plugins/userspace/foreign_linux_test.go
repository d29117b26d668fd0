// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
)

// TestJumpsAreListed: what is not listed is never removed again.
func TestJumpsAreListed(t *testing.T) {
	f := nodeConfig{family: sdk.IPv4, node: sdk.Node{MasqueradeBit: 14}}
	for _, j := range f.jumps(sdk.Active) {
		if !j.Listed() {
			t.Errorf("%s: %s is not listed", j.At, j.Rule)
		}
	}
}

// foreignRules are the rules outside our chains, but for the jumps of ours and of kube-proxy.
func (k kernel) foreignRules() string {
	k.Helper()
	tool, err := iptables.Open(k.Context(), sdk.IPv4, k.backend)
	if err != nil {
		k.Fatal(err)
	}
	tables, err := tool.Save(k.Context(), "nat", "filter")
	if err != nil {
		k.Fatal(err)
	}
	var lines []string
	for id, rules := range tables {
		for _, r := range rules {
			builtIn := slices.Contains([]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}, id.Chain)
			if isOurs(id) || masquerade.Is(id) || builtIn && !strings.HasPrefix(string(r), "-p ") { // the foreign ones begin so
				continue
			}
			lines = append(lines, fmt.Sprintf("%s: %s\n", id, r))
		}
	}
	return strings.Join(sorted(strings.Join(lines, "")), "")
}

// Rules of others that lead to chains of ours stay, word for word, whatever becomes of us.
func TestKernelForeignRulesLeadToOurs(t *testing.T) {
	onNode(t, func(n node) {
		program := "iptables-" + string(n.kernel.backend)
		for _, line := range []string{
			"-t nat -N KUBE-PORTALS-CONTAINER", "-t nat -N MY-OWN", "-N KUBE-PORTALS-DENY", "-N DOCKER-USER",
			"-t nat -A MY-OWN -d 10.96.0.0/12 -j KUBE-PORTALS-CONTAINER", "-A DOCKER-USER -j KUBE-PORTALS-DENY",
			"-t nat -A PREROUTING -p 96 -j KUBE-PORTALS-CONTAINER", "-A FORWARD -p 95 -j KUBE-PORTALS-DENY",
		} {
			n.kernel.run(program, strings.Fields(line)...)
		}
		before := n.kernel.foreignRules()
		stays := func(after string) {
			n.Helper()
			if now := n.kernel.foreignRules(); now != before {
				n.Fatalf("after %s there is\n%s\nand before there was\n%s", after, now, before)
			}
		}
		web := svc("web", "cluster-ip 172.30.0.41:80", podHere+":8080")
		n.serve(web)
		stays("the first sync")
		for _, role := range []sdk.Role{sdk.Draining, sdk.Standby, sdk.Active} {
			n.role(role)
			stays(role.String())
		}
		repaired := n.Report().Repaired
		n.kernel.run(program, "-t", "nat", "-F", portals.Chain)
		eventually(n.T, func() error {
			if n.Report().Repaired == repaired {
				return fmt.Errorf("it is not repaired")
			}
			return nil
		})
		stays("a repair")
		n.begin()
		n.serve(web)
		stays("a restart")
		n.finds("tcp", "172.30.0.41:80", podHere+":8080")
		for _, l := range []sdk.Leftovers{{KubeProxy: true, DryRun: true}, {}, {KubeProxy: true}} {
			gone, err := n.plugin.Cleanup(n.Context(), l)
			if err != nil {
				n.Fatal(err)
			}
			if said := strings.Join(gone, "\n"); l.DryRun && !strings.Contains(said, "keep nat KUBE-PORTALS-CONTAINER, empty: a rule of MY-OWN leads to it") {
				n.Errorf("cleaning up %+v says\n%s", l, said)
			}
			stays(fmt.Sprintf("cleaning up %+v", l))
		}
		if left := strings.ReplaceAll(n.kernel.foreignRules(), before, ""); left != "" {
			n.Errorf("left is %s", left)
		}
	})
}
