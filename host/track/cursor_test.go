// SPDX-License-Identifier: Apache-2.0

package track

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pointsman/pointsman/sdk"
)

var web = sdk.Name{Namespace: "ns1", Service: "web", Port: "http", Protocol: sdk.TCP, Family: sdk.IPv4}

// followedTracker returns a tracker with one Service of two endpoints, and a cursor that has
// confirmed it.
func followedTracker(t *testing.T) (*Tracker, *Cursor, *[]Notice) {
	t.Helper()
	tracker, notices := newTracker()
	tracker.SetService(newService("web", "172.30.0.1"))
	tracker.SetSlice(newSlice("web-1", "web", "10.180.0.1 n1", "10.180.1.1 n2"))
	c := tracker.Cursor(everything)
	want(t, "the first update", nextUpdate(c), `
		full
		set ns1/web:http/tcp4 [cluster-ip 172.30.0.1:80] = [10.180.0.1:8080 here 10.180.1.1:8080]`)
	want(t, "then", nextUpdate(c), "nothing")
	return tracker, c, notices
}

const (
	setBoth  = "set ns1/web:http/tcp4 [cluster-ip 172.30.0.1:80] = [10.180.0.1:8080 here 10.180.1.1:8080]"
	setFirst = "set ns1/web:http/tcp4 [cluster-ip 172.30.0.1:80] = [10.180.0.1:8080 here]"
	setNone  = "set ns1/web:http/tcp4 [cluster-ip 172.30.0.1:80] = []"
)

func oneEndpoint(t *Tracker) { t.SetSlice(newSlice("web-1", "web", "10.180.0.1 n1")) }
func bothEndpoints(t *Tracker) {
	t.SetSlice(newSlice("web-1", "web", "10.180.0.1 n1", "10.180.1.1 n2"))
}

func TestNothingBeforeSynced(t *testing.T) {
	tracker := New(nil)
	c := tracker.Cursor(everything)
	tracker.SetService(newService("web", "172.30.0.1"))
	want(t, "before the caches are full", nextUpdate(c), "nothing")
	<-c.Changed()
	tracker.Synced()
	<-c.Changed()
	for _, pending := range []int{1, 0} { // all Services, until a Full is confirmed
		if s := c.Status(); s.Pending != pending {
			t.Errorf("%d pending, want %d", s.Pending, pending)
		}
		if pending == 1 {
			want(t, "after", nextUpdate(c), "full\n"+setNone)
		}
	}
	if c.Resync(); c.Status().Pending != 1 {
		t.Errorf("after Resync: %+v", c.Status())
	}
}

// Many changes before one Next become one change, and none if they cancel each other out.
func TestLastStateWins(t *testing.T) {
	tracker, c, _ := followedTracker(t)
	oneEndpoint(tracker)
	tracker.SetSlice(newSlice("web-1", "web"))
	oneEndpoint(tracker)
	want(t, "three changes", nextUpdate(c), setFirst)
	bothEndpoints(tracker)
	oneEndpoint(tracker)
	want(t, "there and back", nextUpdate(c), "nothing")
	if s := c.Status(); s.Pending != 0 {
		t.Errorf("pending %d", s.Pending)
	}
}

// A value that was sent and not confirmed is sent again with its current value, even if that
// is the value confirmed before: nobody knows how far the dataplane got.
func TestUnconfirmedIsSentAgain(t *testing.T) {
	tracker, c, _ := followedTracker(t)
	oneEndpoint(tracker)
	lost, _ := c.Next()
	want(t, "lost", text(lost), setFirst)
	bothEndpoints(tracker)
	again, _ := c.Next()
	want(t, "sent again, with the current value", text(again), setBoth)
	if again.From != lost.From || again.To <= lost.To {
		t.Errorf("the second update leads from %d to %d, the lost one from %d to %d", again.From, again.To, lost.From, lost.To)
	}
	c.Ack(lost.To, nil) // a late answer is ignored
	want(t, "and still", nextUpdate(c), setBoth)
	want(t, "then", nextUpdate(c), "nothing")
}

func TestUnconfirmedAndGone(t *testing.T) {
	tracker, c, _ := followedTracker(t)
	tracker.SetService(newService("api", "172.30.0.2"))
	c.Next() // lost
	tracker.DeleteService("ns1", "api")
	want(t, "a Service that the dataplane may serve", nextUpdate(c), "delete ns1/api:http/tcp4")
	tracker.SetService(newService("api", "172.30.0.2"))
	tracker.DeleteService("ns1", "api")
	want(t, "a Service that it cannot serve", nextUpdate(c), "nothing")
}

// A change while an update is in flight is not lost when that is acknowledged.
func TestChangedInFlight(t *testing.T) {
	tracker, c, _ := followedTracker(t)
	oneEndpoint(tracker)
	u, _ := c.Next()
	bothEndpoints(tracker)
	c.Ack(u.To, nil)
	want(t, "after the ack", nextUpdate(c), setBoth)

	oneEndpoint(tracker)
	u, _ = c.Next()
	bothEndpoints(tracker)
	oneEndpoint(tracker)
	c.Ack(u.To, nil)
	want(t, "back to the value in flight", nextUpdate(c), "nothing")
}

func TestResync(t *testing.T) {
	tracker, c, _ := followedTracker(t)
	oneEndpoint(tracker)
	u, _ := c.Next()
	c.Resync()
	c.Ack(u.To, nil) // of the session before
	want(t, "a new session", nextUpdate(c), "full\n"+setFirst)

	c.Resync()
	full, _ := c.Next()
	if full.From != 0 || !full.Full || full.Node == nil {
		t.Errorf("a Full leads from %d, with node %v", full.From, full.Node)
	}
	want(t, "a Full that is not confirmed", nextUpdate(c), "full\n"+setFirst)
}

// A Service that a Full did not contain is sent when it comes back with the same value.
func TestFullForgets(t *testing.T) {
	tracker, c, _ := followedTracker(t)
	tracker.DeleteService("ns1", "web")
	c.Resync()
	want(t, "a Full without it", nextUpdate(c), "full")
	tracker.SetService(newService("web", "172.30.0.1"))
	want(t, "back as it was", nextUpdate(c), setBoth)

	tracker.DeleteService("ns1", "web")
	c.Resync()
	u, _ := c.Next()
	tracker.SetService(newService("web", "172.30.0.1"))
	c.Ack(u.To, nil)
	want(t, "back before the Full is confirmed", nextUpdate(c), setBoth)

	c.Resync()
	u, _ = c.Next()
	c.Ack(u.To, []sdk.Failure{{Name: web, Err: errors.New("no memory")}})
	tracker.DeleteService("ns1", "web")
	c.Resync()
	u, _ = c.Next()
	tracker.SetService(newService("web", "172.30.0.1"))
	c.Ack(u.To, nil)
	want(t, "failed, and back before the Full is confirmed", nextUpdate(c), setBoth)
}

// A failed Service is sent again after Retry or a change; a refused one only after a change.
func TestFailedStaysOwed(t *testing.T) {
	tracker, c, notices := followedTracker(t)
	fails := func(err error) {
		u, ok := c.Next()
		if !ok {
			t.Fatal("nothing to fail")
		}
		c.Ack(u.To, []sdk.Failure{{Name: web, Err: err}})
	}
	oneEndpoint(tracker)
	fails(errors.New("no memory"))
	want(t, "by itself", nextUpdate(c), "nothing")
	c.Retry()
	fails(errors.New("no memory"))
	c.Retry()
	fails(&sdk.Refusal{Why: "no such module"})
	c.Retry()
	want(t, "a refused Service after Retry", nextUpdate(c), "nothing")
	if s := c.Status(); len(s.Failed) != 1 || s.Failed[0].Name != web || s.Pending != 0 || len(c.Confirmed()) > 0 || c.Wanted() > 0 {
		t.Errorf("status %+v, confirmed %v, %d wanted", s, c.Confirmed(), c.Wanted())
	}
	bothEndpoints(tracker)
	want(t, "a refused Service after a change", nextUpdate(c), setBoth)
	if len(c.Confirmed()) != 1 || c.Wanted() != 1 {
		t.Errorf("confirmed %v, %d wanted", c.Confirmed(), c.Wanted())
	}

	got := reasons(*notices)
	if want := []string{"ServiceFailed ns1/web:http/tcp4", "ServiceRefused ns1/web:http/tcp4", "ServiceServed ns1/web:http/tcp4"}; !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}

func TestFailedAndThenGone(t *testing.T) {
	tracker, c, notices := followedTracker(t)
	noMemory := []sdk.Failure{{Name: web, Err: errors.New("no memory")}}
	oneEndpoint(tracker)
	u, _ := c.Next()
	c.Ack(u.To, noMemory)
	bothEndpoints(tracker)
	u, _ = c.Next()
	want(t, "back to the value confirmed before it failed", text(u), setBoth)
	c.Ack(u.To, noMemory)
	tracker.DeleteService("ns1", "web")
	u, _ = c.Next()
	want(t, "gone", text(u), "delete ns1/web:http/tcp4")
	c.Ack(u.To, noMemory)
	c.Retry()
	want(t, "a Delete that failed", nextUpdate(c), "delete ns1/web:http/tcp4")
	if got := reasons(*notices); slices.Contains(got, "ServiceServed ns1/web:http/tcp4") {
		t.Errorf("a deleted Service is reported as served: %q", got)
	}
}

func TestWithheld(t *testing.T) {
	tracker, notices := newTracker()
	d := sdk.Description{Name: "simple", Features: []sdk.Feature{sdk.FeatureIPv4}}
	simple, all := tracker.Cursor(d), tracker.Cursor(everything)
	tracker.SetService(newService("web", "172.30.0.1"))
	want(t, "a simple dataplane", nextUpdate(simple), "full\n"+setNone)
	nextUpdate(all)

	sticky := func(svc *corev1.Service) { svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }
	tracker.SetService(newService("web", "172.30.0.1", sticky))
	want(t, "a dataplane without the feature", nextUpdate(simple), "delete ns1/web:http/tcp4")
	want(t, "a dataplane with the feature", nextUpdate(all), setNone)
	if s := simple.Status(); len(s.Withheld) != 1 || fmt.Sprint(s.Withheld[0].Lacks) != "[affinity]" {
		t.Errorf("withheld %+v", s.Withheld)
	}
	bothEndpoints(tracker)
	want(t, "still withheld", nextUpdate(simple), "nothing")
	if got := reasons(*notices); !slices.Equal(got, []string{"ServiceWithheld ns1/web:http/tcp4"}) {
		t.Errorf("reported %q, want it once", got)
	}
	tracker.SetService(newService("web", "172.30.0.1"))
	want(t, "simple again", nextUpdate(simple), setBoth)

	late := tracker.Cursor(sdk.Description{Name: "late"})
	want(t, "a later cursor withholds existing Services", nextUpdate(late), "full")
}

// A dataplane that takes addresses is not sent addresses of other Nodes (kubernetes#75290), and is sent nothing before
// they are known. Otherwise Services have all their addresses. An address that is left out is a note, not a problem.
func TestAddressesOfOtherNodes(t *testing.T) {
	tracker, notices := newTracker()
	takes := sdk.Description{Name: "takes", Features: sdk.Features, Limits: []sdk.Limit{sdk.LimitTakesAddresses}}
	nodes := []corev1.Node{*newNode("n1", "", "203.0.113.1"), *newNode("n2", "", "192.0.2.20", "2001:db8::20")}
	lb := newService("lb", "172.30.0.1", balancer("192.0.2.20"), externalIPs("203.0.113.1"))
	const (
		all  = "set ns1/lb:http/tcp4 [cluster-ip 172.30.0.1:80 external-ip 203.0.113.1:80 load-balancer 192.0.2.20:80] = []"
		less = "set ns1/lb:http/tcp4 [cluster-ip 172.30.0.1:80 external-ip 203.0.113.1:80] = []"
	)
	wanted := func(what string, want bool) {
		t.Helper()
		if got := tracker.ReviewNodes(); got != want {
			t.Errorf("%s: the Nodes are wanted: %t", what, got)
		}
	}
	usual := tracker.Cursor(everything)
	tracker.SetService(lb)
	wanted("no dataplane takes addresses", false)
	want(t, "one that takes none", nextUpdate(usual), "full\n"+all)

	c := tracker.Cursor(takes)
	wanted("a dataplane takes addresses", true)
	want(t, "before the Nodes are known", nextUpdate(c), "nothing")
	tracker.SetNodes(nodes)
	want(t, "with the Nodes", nextUpdate(c), "full\n"+less)
	want(t, "the other dataplane", nextUpdate(usual), less)
	if s, _ := tracker.Service(Key{"ns1", "lb"}); len(s.Problems) > 0 || fmt.Sprint(s.Notes) != "[load balancer IP 192.0.2.20 is an address of Node n2, which gets what is sent there]" {
		t.Errorf("problems %v, notes %v", s.Problems, s.Notes)
	}
	tracker.SetNodes(nodes[:1])
	want(t, "the Node is gone", nextUpdate(c), all)
	tracker.SetNodes(nodes)
	want(t, "it is back", nextUpdate(c), less)
	usual.Close()
	c.Close()
	wanted("its plugin is restarted", false)
	c = tracker.Cursor(takes)
	want(t, "the next process waits for nothing", nextUpdate(c), "full\n"+less)

	c.Close()
	usual = tracker.Cursor(everything)
	wanted("a mode that takes none", false)
	want(t, "it has all", nextUpdate(usual), "full\n"+all)
	tracker.DeleteService("ns1", "lb")
	c = tracker.Cursor(takes)
	wanted("no Service has external addresses", false)
	want(t, "without external addresses it waits for nothing", nextUpdate(c), "full")
	if len(*notices) > 0 {
		t.Errorf("reported %v", *notices)
	}
}

// During a swap two dataplanes are updated independently.
func TestTwoCursors(t *testing.T) {
	tracker, a, _ := followedTracker(t)
	b := tracker.Cursor(everything)
	oneEndpoint(tracker)
	want(t, "a", nextUpdate(a), setFirst)
	want(t, "b", nextUpdate(b), "full\n"+setFirst)
	bothEndpoints(tracker)
	a.Next() // lost
	want(t, "b again", nextUpdate(b), setBoth)
	oneEndpoint(tracker)
	want(t, "a again", nextUpdate(a), setFirst)
	b.Close()
	bothEndpoints(tracker)
	want(t, "a closed cursor", nextUpdate(b), "nothing")
	want(t, "the other", nextUpdate(a), setBoth)
}

func TestNodeIsAnUpdate(t *testing.T) {
	tracker, c, _ := followedTracker(t)
	tracker.SetNode(newNode("n2", "z1"))
	want(t, "another node", nextUpdate(c), "nothing")
	tracker.Configure(Facts{NodeName: "n1", PodsFromNode: true, PrimaryNodePorts: true})
	n := newNode("n1", "", "192.0.2.10", "192.0.2.11", "2001:db8::10")
	n.Spec.PodCIDRs = []string{"10.180.0.0/24"}
	tracker.SetNode(n)
	u, ok := c.Next() // lost
	if !ok || len(u.Set) != 0 || fmt.Sprint(u.Node.Addrs, u.Node.NodePorts, u.Node.Pods.CIDRs) != "[192.0.2.10 192.0.2.11 2001:db8::10] [192.0.2.10/32 2001:db8::10/128] [10.180.0.0/24]" {
		t.Fatalf("update %v, node %+v", ok, u.Node)
	}
	if u, ok = c.Next(); !ok || u.Node == nil {
		t.Fatal("a node that was not confirmed is not sent again")
	}
	c.Ack(u.To, nil)
	tracker.SetNode(n)
	want(t, "the same node", nextUpdate(c), "nothing")
	tracker.DeleteNode("n1")
	want(t, "its object gone", nextUpdate(c), "nothing")
}

// The zone label of this node decides which hints apply, so its change may change endpoints.
func TestZoneChange(t *testing.T) {
	tracker, c, _ := followedTracker(t)
	slice := newSlice("web-1", "web", "10.180.0.1 n1", "10.180.1.1 n2")
	slice.Endpoints[0].Hints, slice.Endpoints[1].Hints = forZone("z1"), forZone("z2")
	tracker.SetSlice(slice)
	want(t, "without a zone", nextUpdate(c), "nothing")
	tracker.SetNode(newNode("n1", "z1"))
	want(t, "in zone z1", nextUpdate(c), setFirst)
}

// Trigger times are kept until their changes are confirmed.
func TestTriggerTimes(t *testing.T) {
	tracker, c, _ := followedTracker(t)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tracker.Configure(Facts{NodeName: "n1", Since: begin})
	nextUpdate(c)
	change := func(when string, endpoints ...string) {
		s := newSlice("web-1", "web", endpoints...)
		s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: when}
		tracker.SetSlice(s)
	}
	change("2026-01-01T00:00:01Z", "10.180.0.1 n1")
	change("2026-01-01T00:00:02Z", "10.180.0.2 n1")
	change("2026-01-01T00:00:02Z", "10.180.0.2 n1") // nothing of ours
	change("2025-12-31T23:59:59Z", "10.180.0.3 n1") // before our time
	c.Next()                                        // lost
	change("2026-01-01T00:00:03Z", "10.180.0.4 n1")
	u, _ := c.Next()
	change("2026-01-01T00:00:04Z", "10.180.0.5 n1")
	if got := c.Ack(u.To, nil); len(got) != 3 || !got[0].Equal(begin.Add(time.Second)) || !got[2].Equal(begin.Add(3*time.Second)) {
		t.Errorf("triggers %v", got)
	}
	u, _ = c.Next()
	if got := c.Ack(u.To, nil); len(got) != 1 {
		t.Errorf("triggers %v", got)
	}
}

// Changes that are undone before the next update use no memory.
func TestManyChangesLeaveNothing(t *testing.T) {
	tracker, c, _ := followedTracker(t)
	for i := range 10_000 {
		name := fmt.Sprintf("s%d", i)
		tracker.SetService(newService(name, "172.30.0.9"))
		tracker.SetSlice(newSlice(name, "web", fmt.Sprintf("10.181.%d.%d n2", i/256, i%256)))
		tracker.DeleteSlice("ns1", name)
		tracker.DeleteService("ns1", name)
	}
	if n := len(c.owed) + len(tracker.services) + len(tracker.slices) + len(tracker.owners); n > 5 {
		t.Errorf("%d records are left of ten thousand deleted objects", n)
	}
	if len(c.triggers) > maxTriggers {
		t.Errorf("%d triggers", len(c.triggers))
	}
	want(t, "the update", nextUpdate(c), "nothing")
}
