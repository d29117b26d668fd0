// SPDX-License-Identifier: Apache-2.0

package track

import (
	"fmt"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/sdk"
)

// TestServiceCIDR keeps external IPs out of the ranges of ClusterIPs, for as long as
// those are told of (CVE-2020-8554).
func TestServiceCIDR(t *testing.T) {
	tracker, _ := newTracker()
	tracker.SetService(newService("web", "172.30.0.1", externalIPs("172.30.0.99", "203.0.113.1")))
	served := func(when string, want bool) {
		t.Helper()
		svc, ok := tracker.Value(sdk.Name{Namespace: "ns1", Service: "web", Port: "http", Family: sdk.IPv4, Protocol: sdk.TCP})
		if !ok {
			t.Fatalf("%s: it is not served: %v", when, tracker.Services())
		}
		got := slices.ContainsFunc(svc.Frontends, func(f sdk.Frontend) bool { return f.Addr.String() == "172.30.0.99:80" })
		if got != want {
			t.Errorf("%s: its frontends are %s", when, fmt.Sprint(svc.Frontends))
		}
	}
	served("before any range is known", true)
	tracker.SetServiceCIDR(&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"172.30.0.0/16"}}})
	served("within a range", false)
	tracker.DeleteServiceCIDR("kubernetes")
	served("when the range is gone", true)
}
