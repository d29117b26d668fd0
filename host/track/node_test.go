// SPDX-License-Identifier: Apache-2.0

package track

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/host/reach"
)

// TestExternalIPOfNode: an external IP that becomes an address of the node is served with one
// warning, until the operator refuses it.
func TestExternalIPOfNode(t *testing.T) {
	tracker, notices := newTracker()
	facts := Facts{NodeName: "n1", OwnAddrs: []netip.Addr{netip.MustParseAddr("198.51.100.7")}, NodeAddresses: reach.WarnOfNodeAddresses}
	tracker.SetService(newService("web", "172.30.0.1", externalIPs("198.51.100.7")))
	check := func(when string, warned, troubled int) {
		t.Helper()
		s := append(tracker.Troubled(), ServiceStatus{})[0]
		if len(s.Problems) != troubled || len(s.Warnings) != warned || warned > 0 && (s.Name != "web" || s.Warnings[0].Reason != reach.ExternalIPOfNode) {
			t.Errorf("%s: %+v", when, s)
		}
	}
	check("an address of another machine", 0, 0)
	for range 2 {
		tracker.Configure(facts)
		tracker.SetService(newService("web", "172.30.0.1", externalIPs("198.51.100.7"), created(2)))
		check("an address of the node", 1, 0)
	}
	facts.NodeAddresses = reach.RefuseNodeAddresses
	tracker.Configure(facts)
	check("refused", 0, 1)
	if got, want := reasons(*notices), []string{"ExternalIPOfNode ns1/web", "ExternalIPRefused ns1/web"}; !slices.Equal(got, want) {
		t.Errorf("notices %q, want %q", got, want)
	}
}

// TestServiceCIDR: external IPs in the range of a ServiceCIDR object are refused while the object
// exists (CVE-2020-8554).
func TestServiceCIDR(t *testing.T) {
	tracker, _ := newTracker()
	tracker.SetService(newService("web", "172.30.0.1", externalIPs("172.30.0.99", "203.0.113.1")))
	served := func(when, want string) {
		t.Helper()
		if got := fmt.Sprint(tracker.values[web].Frontends); got != want {
			t.Errorf("%s: its frontends are %s, want %s", when, got, want)
		}
	}
	const all = "[cluster-ip 172.30.0.1:80 external-ip 172.30.0.99:80 external-ip 203.0.113.1:80]"
	served("before any range is known", all)
	tracker.SetServiceCIDR(&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"172.30.0.0/16"}}})
	served("within a range", "[cluster-ip 172.30.0.1:80 external-ip 203.0.113.1:80]")
	tracker.DeleteServiceCIDR("kubernetes")
	served("after the range was deleted", all)
}

// TestNodeAddresses: configured addresses take precedence over those of the Node object, and these over the addresses
// of the machine. Addresses that no machine can have are not used.
func TestNodeAddresses(t *testing.T) {
	tracker, notices := newTracker()
	own, hand := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	check := func(when string, want string) {
		t.Helper()
		if got := fmt.Sprint(tracker.Node().Addrs); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	tracker.Configure(Facts{NodeName: "n1", OwnAddrs: []netip.Addr{own}})
	check("no Node object", "[192.0.2.1]")
	node := newNode("n1", "", "255.255.255.255", "0.0.0.0", "224.0.0.1", "192.0.2.10", "::")
	tracker.SetNode(node)
	tracker.SetNode(node)
	check("a Node object", "[192.0.2.10]")
	tracker.Configure(Facts{NodeName: "n1", OwnAddrs: []netip.Addr{own}, NodeAddrs: []netip.Addr{hand}})
	check("configured", "[192.0.2.2]")
	if len(*notices) != 4 || (*notices)[0].Message != "node address 255.255.255.255 is the broadcast address; it is not used" {
		t.Errorf("reported %v", *notices)
	}
}
