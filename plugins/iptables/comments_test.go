// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// commented returns the rules for services, either with all comments or with as few as possible.
func commented(t *testing.T, of sdk.Family, node sdk.Node, services []sdk.Service, comments bool) fakeRules {
	t.Helper()
	b, pieces := onFake(t, of, node), make(map[sdk.Name]rules.Piece)
	for _, svc := range services {
		if svc.Name.Family == of {
			pieces[svc.Name] = want(svc, node, comments)
		}
	}
	b.write(t, pieces)
	return b
}

// For each scenario, the rules with and without comments send every packet where the scenario says, according to the
// oracle. Both differ in optional comments only, so keepComments may keep either.
func TestScenariosTraced(t *testing.T) {
	for _, s := range sdktest.Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			for _, of := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
				with, without := commented(t, of, s.Node, s.Services, true), commented(t, of, s.Node, s.Services, false)
				few, all := without.ours(), with.ours()
				if len(few) != len(all) {
					t.Errorf("%s: %d chains without comments, %d with", of, len(few), len(all))
				}
				for id := range all {
					for i, r := range few[id] { // chains of Services
						if has := r.Comment() != ""; !isFixed(id) && rank(iptables.Chain{ID: id}) > 0 && has != (i == 0 && isList(id)) {
							t.Errorf("without comments rule %d of %s is %q", i, id, r)
						}
					}
					a, b := iptables.Join(few[id]), iptables.Join(all[id])
					if !sameRules(id, a, b) || !sameRules(id, b, a) {
						t.Errorf("%s: the rules differ in more than comments: without\n%swith\n%s", id, a, b)
					}
				}
				for _, p := range s.Packets {
					if sdk.FamilyOf(p.To.Addr()) != of {
						continue
					}
					if a, b := outcome(t, without.tables(), p, s.Node), outcome(t, with.tables(), p, s.Node); !a.Equal(b) || !a.Equal(p.Want) {
						t.Errorf("line %d, %s: without comments %s, with them %s", p.Line, p.Text, a, b)
					}
				}
			}
		})
	}
}

// A comment has room for the longest names that Kubernetes allows with the longest address.
func TestLongestComment(t *testing.T) {
	svc := service(1, sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(v6(1), 80)})
	svc.Name.Namespace, svc.Name.Service, svc.Name.Port = strings.Repeat("n", 63), strings.Repeat("s", 63), strings.Repeat("p", 15)
	svc.Cluster = []sdk.Endpoint{{Addr: netip.MustParseAddrPort("[2001:1111:2222:3333:4444:5555:6666:7777]:65535")}}
	text := iptables.Label(svc.Name) + " -> " + svc.Cluster[0].Addr.String()
	for _, c := range want(svc, sdk.Node{}, true).Chains {
		for _, r := range iptables.Split(c.Text) {
			if r.Target() == "DNAT" && r.Comment() != text {
				t.Errorf("the comment %q was truncated to %q", text, r.Comment())
			}
		}
	}
}

// Rules have comments up to a number of Services on the node and of endpoints in the Service.
func TestCommentsOfFewServices(t *testing.T) {
	f, _ := familyOf(sdk.IPv4)
	small, big := stickyService(1), large(fewEndpoints+1)
	for _, step := range []struct {
		services int
		comments bool
	}{{1000, true}, {1001, false}, {30_000, false}, {0, true}} {
		f.many = func() int { return step.services }
		if f.hasComments(small) != step.comments || f.hasComments(big) {
			t.Errorf("with %d Services, hasComments returns %v, and %v for a large Service", step.services, f.hasComments(small), f.hasComments(big))
		}
	}
}

// stickyService returns Service i with one endpoint and affinity.
func stickyService(i int) sdk.Service {
	svc := service(i, sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(v4(base+uint32(i)), 80)})
	svc.Affinity = 1e9
	return svc
}

// putAll renders n Services again, applies them, and returns the chains that are written.
func putAll(t *testing.T, f *family, b fakeRules, n int) []iptables.ID {
	t.Helper()
	pieces := make(map[sdk.Name]rules.Piece)
	f.many = func() int { return n }
	for i := range n {
		d, err := f.Want(stickyService(i))
		if err != nil {
			t.Fatal(err)
		}
		pieces[stickyService(i).Name] = d
	}
	return written(t, b.write(t, pieces))
}

// When the number of Services crosses the limit, only the changed Service is written, even if all Services are rendered
// again. A process that adopts rules with or without comments keeps them.
func TestNothingIsWrittenForAComment(t *testing.T) {
	f, b := familyOf(sdk.IPv4)
	b.list(t)
	putAll(t, f, b, fewServices)
	beyond := putAll(t, f, b, fewServices+1)
	own := want(stickyService(fewServices), sdk.Node{MasqueradeBit: 14}, false)
	for _, c := range own.Chains {
		if !slices.Contains(beyond, c.ID) || iptables.Join(b.fake.Tables[c.ID]) != c.Text {
			t.Errorf("%s is not written without comments", c.ID)
		}
	}
	if len(beyond) > len(own.Chains)+5 { // and some chains of the tree
		t.Errorf("adding one Service above the limit wrote the chains %s", beyond)
	}
	if written := putAll(t, f, b, fewServices); len(written) > len(own.Chains)+5 {
		t.Errorf("below the limit, these chains were written: %s", written)
	}
	for _, services := range []int{fewServices, fewServices + 1} {
		next, n := familyOf(sdk.IPv4)
		n.fake.Tables = b.fake.Tables
		n.list(t)
		if written := putAll(t, next, n, services); len(written) > 5 {
			t.Errorf("a new process with %d Services wrote the chains %s", services, written)
		}
	}
}

// If another program removed the comment of a list's first rule, the list is written again, because adoption reads the
// Service's name there.
func TestNameOfListIsNotOptional(t *testing.T) {
	f, b := familyOf(sdk.IPv4)
	b.list(t)
	putAll(t, f, b, 3)
	id := nat(clusterChain(stickyService(1).Name))
	b.fake.Tables[id] = iptables.Split(optionalComment.ReplaceAllString(iptables.Join(b.fake.Tables[id]), ""))
	b.list(t)
	if written := putAll(t, f, b, 3); len(written) != 1 {
		t.Errorf("these chains were written, want one: %s", written)
	}
}

// scenario returns the scenario with this name from the conformance suite.
func scenario(t *testing.T, name string) sdktest.Scenario {
	t.Helper()
	for _, s := range sdktest.Scenarios() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no scenario %s", name)
	return sdktest.Scenario{}
}
