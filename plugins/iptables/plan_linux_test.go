// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// planned is what another process says that it would write for s.
func (k kernel) planned(s sdktest.Scenario) []string {
	k.Helper()
	p := New(k.dir).(*plugin)
	defer p.die()
	r, err := p.Plan(k.Context(), sdk.Setup{Options: k.options()}, s.Update(1))
	if err != nil || len(r.Failed) > 0 {
		k.Fatalf("plan: %+v, %v", r, err)
	}
	return r.Steps
}

// all is every table of both families, as the program prints it.
func (k kernel) all() string {
	k.Helper()
	var text strings.Builder
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		tables := k.tables(family)
		var ids []iptables.ID
		for id := range tables {
			ids = append(ids, id)
		}
		slices.SortFunc(ids, iptables.ID.Compare)
		for _, id := range ids {
			text.WriteString(family.String() + " " + id.String() + "\n" + iptables.Join(tables[id]))
		}
	}
	return text.String()
}

// Beside the writer another process names what differs, rule by rule, and changes nothing: of what
// stands, nothing; and of what others do while the writer does not look, that alone.
func TestKernelPlanNamesDrift(t *testing.T) {
	onKernel(t, func(k kernel) {
		s := scenario(k.T, "cluster-ip")
		p := k.start()
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		program, chain := "iptables-"+string(k.backend), clusterChain(s.Services[0].Name)
		if got := k.planned(s); len(got) > 0 {
			k.Errorf("of what stands it would write %q", got)
		}
		for _, c := range []struct {
			why  string
			harm [][]string
			says []string // lines
		}{
			{"a chain is emptied", [][]string{{"-t", "nat", "-F", chain}}, []string{"ipv4: write nat " + chain + " (", "  + -m comment --comment "}},
			{"a foreign rule is first", [][]string{{"-t", "nat", "-I", services, "1", "-p", "tcp", "-j", "RETURN"}}, []string{"ipv4: write nat " + services + " (", "  - -p tcp -j RETURN"}},
			{"a jump is removed", [][]string{{"-t", "nat", "-F", "PREROUTING"}}, []string{"ipv4: insert into nat PREROUTING: "}},
			{"of what all dataplanes share a rule is removed", [][]string{{"-t", "nat", "-D", "KUBE-POSTROUTING", "1"}}, []string{"ipv4: write nat KUBE-POSTROUTING (3 rules)", "  + -m mark ! --mark "}},
		} {
			err := p.Do(k.Context(), func(map[sdk.Name]sdk.Service) error { // the writer does nothing meanwhile
				for _, args := range c.harm {
					k.run(program, args...)
				}
				before := k.all()
				got := k.planned(s)
				for _, want := range c.says {
					if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, want) }) {
						k.Errorf("%s: no line begins with %q in %q", c.why, want, got)
					}
				}
				if steps := slices.DeleteFunc(slices.Clone(got), func(line string) bool { return strings.HasPrefix(line, " ") }); len(steps) != 1 {
					k.Errorf("%s: steps %q", c.why, steps)
				}
				if now := k.all(); now != before {
					k.Errorf("%s: the plan changed the tables to\n%s\nfrom\n%s", c.why, now, before)
				}
				return nil
			})
			if err != nil {
				k.Fatal(err)
			}
			k.sync(p, s.Update(1)) // puts right what only an audit would find, in minutes
			k.want(s, sdk.Active)
		}
	})
}

// With no process that serves, and on empty tables, a plan names all that would be written, and
// leaves the tables empty.
func TestKernelPlanAlone(t *testing.T) {
	onKernel(t, func(k kernel) {
		s := scenario(k.T, "cluster-ip")
		before := k.all()
		got := k.planned(s)
		for _, want := range []string{"ipv4: write nat " + clusterChain(s.Services[0].Name) + " (", "ipv4: write nat KUBE-POSTROUTING (3 rules)", "ipv4: insert into nat PREROUTING: "} {
			if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, want) }) {
				k.Errorf("no line begins with %q in %q", want, got)
			}
		}
		if now := k.all(); now != before {
			k.Errorf("the plan changed the tables to\n%s", now)
		}
	})
}
