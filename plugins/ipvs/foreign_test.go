// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rulestest"
	"github.com/pointsman/pointsman/sdk"
)

// foreignRules are jumps of another program to our chains and to chains of kube-proxy in ipvs mode.
var foreignRules = []iptables.Jump{
	{At: nat("MY-OWN"), Rule: "-d 10.96.0.0/12 -j KUBE-IPVS-SERVICES"},
	{At: nat("PREROUTING"), Rule: "-p tcp -j KUBE-IPVS-SERVICES"},
	{At: filter("DOCKER-USER"), Rule: "-j KUBE-FORWARD"},
	{At: filter("DOCKER-USER"), Rule: "-j KUBE-IPVS-FORWARD"},
	{At: filter("FORWARD"), Rule: "-i eth7 -j KUBE-FORWARD"},
}

func (f *fake) addForeign() {
	for _, j := range foreignRules {
		t, to := f.tables[sdk.IPv4], iptables.ID{Table: j.At.Table, Chain: j.Rule.Target()}
		t[j.At] = append(t[j.At], j.Rule)
		if _, there := t[to]; !there {
			t[to] = nil
		}
	}
}

// Foreign rules that jump to our chains are never changed: not by this dataplane, and not when it replaces kube-proxy.
// Cleanup empties and keeps the chains that they jump to.
func TestForeignRulesLeadToOurs(t *testing.T) {
	l := newInstance(t)
	served := l.fake.runKubeProxy(t)
	l.fake.addForeign()
	stay := func(after string) {
		t.Helper()
		for _, j := range foreignRules {
			if n := count(l.fake.tables[sdk.IPv4][j.At], j.Rule); n != 1 {
				t.Errorf("after %s, %s has %d copies of the rule %s, want 1", after, j.At, n, j.Rule)
			}
		}
	}
	l.full(served)
	stay("the first sync")
	for _, role := range []sdk.Role{sdk.Active, sdk.Draining, sdk.Standby, sdk.Active} {
		l.role(role)
		stay(role.String())
	}
	if rules, there := l.fake.tables[sdk.IPv4][filter("KUBE-FORWARD")]; !there || len(rules) > 0 {
		t.Errorf("KUBE-FORWARD, to which a foreign rule jumps, should be empty: exists %v, rules %q", there, rules)
	}
	l.restart()
	l.full(served)
	stay("a restart")
	if l.plugin.session.families[0].role != sdk.Active {
		t.Errorf("after a restart the role is %s", l.plugin.session.families[0].role)
	}
	for _, leftovers := range []sdk.Leftovers{{KubeProxy: true, DryRun: true}, {KubeProxy: true}} {
		gone, err := l.plugin.Cleanup(t.Context(), leftovers)
		if err != nil || !strings.Contains(strings.Join(gone, "\n"), "keep nat KUBE-IPVS-SERVICES, empty: a rule of MY-OWN leads to it") {
			t.Errorf("Cleanup reports\n%s\n%v", strings.Join(gone, "\n"), err)
		}
		stay("cleaning up")
	}
	for id, rules := range l.fake.tables[sdk.IPv4] {
		if strings.HasPrefix(id.Chain, "KUBE-") && !rulestest.IsShared(id) && (len(rules) > 0 || !slices.ContainsFunc(foreignRules, func(j iptables.Jump) bool { return j.Rule.Target() == id.Chain })) {
			t.Errorf("Cleanup left %s with the rules %q", id, rules)
		}
	}
}

func count(rules []iptables.Rule, rule iptables.Rule) (n int) {
	for _, r := range rules {
		if r == rule {
			n++
		}
	}
	return n
}
