// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestRoute: for any packet and Service, the verdict is that of the contract, and the steps agree with the verdict.
func TestRoute(t *testing.T) {
	random := rand.New(rand.NewPCG(18, 2))
	endpoints := []sdk.Endpoint{{Addr: netip.MustParseAddrPort("10.0.0.1:80"), OnNode: true}, {Addr: netip.MustParseAddrPort("10.0.1.1:80")}}
	ranges := []netip.Prefix{netip.MustParsePrefix("198.18.0.0/16")}
	seen := make(map[string]bool)
	for range 3000 {
		s := sdk.Service{Name: sdk.Name{Namespace: "ns", Service: "web", Protocol: sdk.TCP, Family: sdk.IPv4}, Cluster: endpoints[:random.IntN(3)]}
		if random.IntN(2) == 0 && len(s.Cluster) > 0 {
			s.Local = endpoints[:1]
		}
		f := sdk.Frontend{Kind: sdk.Kind(1 + random.IntN(4)), Addr: netip.MustParseAddrPort("10.96.0.1:80"), Policy: sdk.Policy(1 + random.IntN(2)), Sources: ranges[:random.IntN(2)]}
		from := sdk.Caller{Addr: netip.MustParseAddr([]string{"198.18.0.1", "10.0.0.1"}[random.IntN(2)]), From: sdk.Origin(random.IntN(3))}
		node := sdk.Node{MasqueradeAll: random.IntN(4) == 0}
		if random.IntN(2) == 0 {
			node.Pods.CIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
		}
		route, steps := Route(s, f, from, node)
		if want := s.Route(f, from, node); !reflect.DeepEqual(route, want) {
			t.Fatalf("%v, want %v", route, want)
		}
		answers := make(map[string]string)
		for _, step := range steps {
			answers[step.Question] = step.Answer
			seen[step.Question+": "+step.Answer] = true
		}
		if yes := strings.HasPrefix(answers["allowed"], "yes"); yes != f.Allows(from.Addr) {
			t.Fatalf("%v from %v: %q", f, from, answers["allowed"])
		}
		none := strings.HasPrefix(answers["endpoints"], "none")
		if f.Allows(from.Addr) && none != (route.Verdict != sdk.Forward) {
			t.Fatalf("%v to %v: %q", from, s, answers["endpoints"])
		}
		if masquerade, said := answers["masquerade"]; said != (route.Verdict == sdk.Forward) || strings.HasPrefix(masquerade, "yes") != route.Masquerade {
			t.Fatalf("%v from %v on %v: %q, and %v", f, from, node, masquerade, route)
		}
	}
	for _, want := range []string{
		"allowed: no: 10.0.0.1 is not in 198.18.0.0/16, the Service's source ranges",
		"endpoints: none is usable on any node, so callers are rejected",
		"endpoints: none of the 2 is on this node, and its traffic policy is local",
		"endpoints: one of 2: its traffic policy is local, but that applies only to callers from outside the cluster",
		"masquerade: no: the policy local keeps the caller's address",
		"masquerade: yes: masqueradeAll is set",
	} {
		if !seen[want] {
			t.Errorf("this step never occurred: %q", want)
		}
	}
}
