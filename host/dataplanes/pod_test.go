// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk"
)

// TestNamedPod: the pod that a question names stands where its endpoint does, with the address of the
// packet's family; of one that is not known a near name is said.
func TestNamedPod(t *testing.T) {
	addrs := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	pods := []Pod{
		{Name: "web-1", Node: "one", Addrs: addrs("10.244.1.7")}, {Name: "web-1", Node: "one", Addrs: addrs("fd00::7")},
		{Name: "web-2", Node: "two", Addrs: addrs("10.244.2.7")}, {Name: "loose", Addrs: addrs("10.244.3.7")}, {Name: "proxy", Node: "one", Addrs: addrs("192.0.2.10")},
	}
	for _, tt := range []struct{ from, to, want string }{
		{"shop/web-1", "10.96.0.10:80", "pod 10.244.1.7: shop/web-1 has the address 10.244.1.7, on this node"},
		{"pod:shop/web-1", "[fd00::10]:80", "pod fd00::7: shop/web-1 has the address fd00::7, on this node"},
		{"shop/web-2", "10.96.0.10:80", "outside 10.244.2.7: shop/web-2 has the address 10.244.2.7, on node two"},
		{"shop/loose", "10.96.0.10:80", "any 10.244.3.7: shop/loose has the address 10.244.3.7, it is not said on which node"},
		{"shop/proxy", "10.96.0.10:80", "node 192.0.2.10: shop/proxy has the address 192.0.2.10, which is one of this node's own"},
		{"shop/web-2", "[fd00::10]:80", "pod shop/web-2 has no ipv6 address"},
		{"shop/wbe-1", "10.96.0.10:80", "no pod shop/wbe-1 is behind an endpoint of a Service, by which alone pods are known here"},
	} {
		q, err := admin.ParseQuestion(tt.from, tt.to)
		if err != nil {
			t.Fatal(err)
		}
		set := New(Settings{NodeName: "one", Pods: func(_ context.Context, namespace string) ([]Pod, error) {
			if namespace != "shop" {
				t.Errorf("asked for %q", namespace)
			}
			return pods, nil
		}})
		said, err := set.pod(t.Context(), &q, func(a netip.Addr) bool { return a == netip.MustParseAddr("192.0.2.10") })
		got := q.Caller + " " + q.From.String() + ": " + said
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(strings.ToLower(got), strings.ToLower(tt.want)) {
			t.Errorf("%s to %s: %q, want %q", tt.from, tt.to, got, tt.want)
		}
	}
}

// TestExplainPod has a packet of a pod that is named come to the endpoint that it should.
func TestExplainPod(t *testing.T) {
	set := explained(t, sdk.Pods{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}})
	set.NodeName = "one"
	set.Pods = func(context.Context, string) ([]Pod, error) {
		return []Pod{{Name: "web-2", Node: "two", Addrs: []netip.Addr{netip.MustParseAddr(podOfElse)}}}, nil
	}
	q, err := admin.ParseQuestion("shop/web-2", "172.30.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	x, err := set.Explain(t.Context(), q)
	if err != nil || x.Verdict != "forward" || len(x.Steps) == 0 || x.Steps[0].Answer != "shop/web-2 has the address 10.244.2.7, on node two" || x.Caller != admin.CallerOutside || x.Pod != "shop/web-2" {
		t.Errorf("%+v, %v", x, err)
	}
	set.Pods = func(context.Context, string) ([]Pod, error) { return nil, errors.New("the API server is gone") }
	if _, err := set.Explain(t.Context(), q); err == nil || !strings.Contains(err.Error(), "look up the pod shop/web-2: the API server is gone") {
		t.Errorf("without an answer: %v", err)
	}
}
