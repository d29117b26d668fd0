// SPDX-License-Identifier: Apache-2.0

package track

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pointsman/pointsman/sdk"
)

// clusterPods are the ranges of pods of all nodes.
var clusterPods = sdk.Pods{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.180.0.0/16"), netip.MustParsePrefix("fd00:10:180::/48")}}

func withPodCIDRs(n *corev1.Node, cidrs ...string) *corev1.Node {
	n.Spec.PodCIDRs = cidrs
	return n
}

// TestPodCIDRs: podCIDRs are sent unless an endpoint has contradicted them. A CNI may give pods other addresses.
func TestPodCIDRs(t *testing.T) {
	tracker := New(nil)
	tracker.Configure(Facts{NodeName: "n1", Pods: clusterPods})
	tracker.Synced()
	sent := func(when, want string) {
		t.Helper()
		u, _ := tracker.Cursor(everything).Next()
		if got := fmt.Sprint(u.Node.PodCIDRs); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	sent("no Node object", "[]")
	tracker.SetNode(withPodCIDRs(newNode("n1", "", "10.180.200.1"), "10.180.1.0/24", "fd00:10:180:1::/64", "10.244.1.0/24"))
	sent("podCIDRs within the cluster's range", "[10.180.1.0/24 fd00:10:180:1::/64]")

	tracker.SetSlice(newSlice("a", "web", "10.180.1.5 n1", "10.180.2.5 n2", "10.180.2.6", "203.0.113.5 n1", "10.180.200.1 n1"))
	sent("a pod within, of another node, of none, of outside, in the node's network", "[10.180.1.0/24 fd00:10:180:1::/64]")
	tracker.SetSlice(newSlice("a", "web", "10.180.77.5 n1", "10.180.77.6 n1"))
	sent("pods outside", "[fd00:10:180:1::/64]")
	tracker.SetSlice(newSlice("a", "web", "10.180.1.5 n1"))
	sent("the pods outside are gone", "[fd00:10:180:1::/64]")

	tracker.SetSlice(newSlice("b", "", "10.180.77.7 n1 unready"))
	tracker.SetNode(withPodCIDRs(newNode("n1", ""), "10.180.1.0/24"))
	sent("other ranges, and a pod outside that is not ready", "[]")
	tracker.SetNode(withPodCIDRs(newNode("n1", ""), "10.180.0.0/17"))
	sent("ranges with all pods", "[10.180.0.0/17]")
	tracker.Configure(Facts{NodeName: "n1", Pods: sdk.Pods{Bridge: "cni0"}})
	sent("pods are known by their bridge", "[]")
	tracker.Configure(Facts{NodeName: "n1", PodsFromNode: true})
	sent("they are the ranges of pods already", "[]")
}
