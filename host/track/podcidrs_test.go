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

// TestPodCIDRs: podCIDRs are sent as long as no endpoint contradicts them. A CNI may give pods other addresses.
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
	tracker.SetSlice(newSlice("b", "", "10.180.77.7 n1 unready"))
	tracker.SetSlice(newSlice("a", "web", "10.180.1.5 n1"))
	sent("another pod outside, which is not ready", "[fd00:10:180:1::/64]")
	tracker.SetSlice(newSlice("b", "api", "10.180.77.7 n1"))
	sent("now of a Service", "[fd00:10:180:1::/64]")

	tracker.SetNode(withPodCIDRs(newNode("n1", ""), "10.180.77.0/24"))
	sent("its range, and not that of the other", "[]")
	tracker.DeleteSlice("ns1", "a")
	sent("the last one outside is gone", "[10.180.77.0/24]")
	tracker.Configure(Facts{NodeName: "n1", Pods: sdk.Pods{Bridge: "cni0"}})
	sent("pods are known by their bridge", "[]")
	tracker.Configure(Facts{NodeName: "n1", PodsFromNode: true})
	sent("they are the ranges of pods already", "[]")
}

// TestPodCIDRsChangeSeldom: while one pod is outside podCIDRs, further ones do not refresh all
// Services.
func TestPodCIDRsChangeSeldom(t *testing.T) {
	tracker := New(nil)
	tracker.Configure(Facts{NodeName: "n1", Pods: clusterPods})
	tracker.SetNode(withPodCIDRs(newNode("n1", ""), "10.180.1.0/24"))
	tracker.Synced()
	c := tracker.Cursor(everything)
	for i, step := range []struct {
		endpoints string
		changes   bool
	}{{"10.180.1.5 n1", true}, {"10.180.77.5 n1", true}, {"10.180.77.6 n1", false}, {"10.180.1.5 n1", true}, {"10.180.1.6 n1", false}} {
		tracker.SetService(newService("web", "172.30.0.1"))
		tracker.SetSlice(newSlice("a", "web", step.endpoints))
		u, _ := c.Next()
		c.Ack(u.To, nil)
		if (u.Node != nil) != step.changes {
			t.Errorf("step %d, %s: the node is %+v", i, step.endpoints, u.Node)
		}
	}
}
