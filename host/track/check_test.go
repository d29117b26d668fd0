// SPDX-License-Identifier: Apache-2.0

package track

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// checks returns the health checks as text.
func checks(t *Tracker) string {
	var lines []string
	for _, c := range t.HealthChecks() {
		lines = append(lines, fmt.Sprintf("%s on %d: %d", c.Key, c.Port, c.Ready.IPv4))
	}
	return strings.Join(lines, "\n")
}

// TestHealthChecks follows two Services with the same health check node port.
func TestHealthChecks(t *testing.T) {
	tracker := New(nil)
	tracker.Configure(Facts{NodeName: "n1"})
	web := newService("web", "172.30.0.1", healthCheck(31000), balancer("203.0.113.1"), created(2))
	tracker.SetService(web)
	want(t, "before Synced", checks(tracker), "")
	tracker.Synced()
	want(t, "synced", checks(tracker), "ns1/web on 31000: 0")
	tracker.SetSlice(newSlice("web-1", "web", "10.180.0.1 n1", "10.180.0.2 n1 unready", "10.180.1.1 n2"))
	want(t, "an endpoint here", checks(tracker), "ns1/web on 31000: 1")
	tracker.SetSlice(newSlice("web-1", "web", "10.180.0.1 n1", "10.180.1.2 n2"))
	want(t, "a change on another node", checks(tracker), "ns1/web on 31000: 1")

	tracker.SetService(newService("old", "172.30.0.2", healthCheck(31000), balancer("203.0.113.2"), created(1)))
	want(t, "an older Service has the port", checks(tracker), "ns1/old on 31000: 0")
	tracker.SetService(newService("other", "172.30.0.3"))
	if n := len(tracker.checked); n != 2 {
		t.Errorf("HealthChecks reads %d Services, want the 2 with such a port", n)
	}
	tracker.DeleteService("ns1", "old")
	want(t, "it is deleted", checks(tracker), "ns1/web on 31000: 1")
	tracker.SetService(newService("web", "172.30.0.1", balancer("203.0.113.1"), created(2)))
	want(t, "without the port", checks(tracker), "")
	if n := len(tracker.checked); n > 0 {
		t.Errorf("at the end HealthChecks reads %d Services", n)
	}
}

// TestLacks counts each Service once for each kind of traffic.
func TestLacks(t *testing.T) {
	tracker, _ := newTracker()
	tracker.SetService(newService("a", "172.30.0.1", healthCheck(31000), balancer("203.0.113.1"), nodePort(30080)))
	tracker.SetService(newService("b", "172.30.0.2", healthCheck(31001), balancer("203.0.113.2")))
	tracker.SetService(newService("empty", "172.30.0.3", healthCheck(31002), balancer("203.0.113.3")))
	tracker.SetSlice(newSlice("a-1", "a", "10.180.1.1 n2"))
	tracker.SetSlice(newSlice("b-1", "b", "10.180.0.1 n1"))
	if got, want := tracker.Lacks(), (map[Lack]int{{Family: sdk.IPv4}: 1}); !maps.Equal(got, want) {
		t.Errorf("lacks %v, want %v", got, want)
	}
}

// TestChanges: only objects with a difference that matters are counted.
func TestChanges(t *testing.T) {
	tracker, _ := newTracker()
	for range 2 {
		tracker.SetService(newService("a", "172.30.0.1"))
		tracker.SetSlice(newSlice("a-1", "a", "10.180.1.1 n2"))
	}
	tracker.SetSlice(newSlice("a-1", "a", "10.180.1.2 n2"))
	tracker.DeleteSlice("ns1", "a-1")
	tracker.DeleteSlice("ns1", "a-1")
	tracker.DeleteService("ns1", "a")
	if got := tracker.Changes(); got != (Changes{Services: 2, Slices: 3}) {
		t.Errorf("changes %+v", got)
	}
}
