// SPDX-License-Identifier: Apache-2.0

package track

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func forZone(name string) *discoveryv1.EndpointHints {
	return &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: name}}}
}

func TestSliceBeforeItsService(t *testing.T) {
	tracker, _ := newTracker()
	c := tracker.Cursor(everything)
	bothEndpoints(tracker)
	want(t, "a slice alone", nextUpdate(c), "full")
	tracker.SetService(newService("web", "172.30.0.1"))
	want(t, "its Service", nextUpdate(c), setBoth)
}

func TestSliceMovesBetweenServices(t *testing.T) {
	tracker, c, _ := followedTracker(t)
	tracker.SetService(newService("api", "172.30.0.2"))
	nextUpdate(c)
	tracker.SetSlice(newSlice("web-1", "api", "10.180.0.1 n1"))
	want(t, "in one update", nextUpdate(c), `
		set ns1/api:http/tcp4 [cluster-ip 172.30.0.2:80] = [10.180.0.1:8080 here]
		set ns1/web:http/tcp4 [cluster-ip 172.30.0.1:80] = []`)
	tracker.DeleteSlice("ns1", "web-1")
	want(t, "gone", nextUpdate(c), "set ns1/api:http/tcp4 [cluster-ip 172.30.0.2:80] = []")
}

func TestSliceLosesItsLabel(t *testing.T) {
	tracker, c, notices := followedTracker(t)
	s := newSlice("web-1", "web", "10.180.0.1 n1")
	s.Labels = nil
	tracker.SetSlice(s)
	tracker.SetSlice(s)
	want(t, "without its endpoints", nextUpdate(c), setNone)
	if got := reasons(*notices); !slices.Equal(got, []string{"SliceNotJoined EndpointSlice ns1/web-1"}) {
		t.Errorf("reported %q, want one notice", got)
	}
	bothEndpoints(tracker)
	want(t, "labelled again", nextUpdate(c), setBoth)
}

func TestServiceOfAnotherProxy(t *testing.T) {
	tracker, c, _ := followedTracker(t)
	svc := newService("web", "172.30.0.1")
	svc.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "other"}
	tracker.SetService(svc)
	want(t, "it belongs to another proxy", nextUpdate(c), "delete ns1/web:http/tcp4")
	tracker.SetService(newService("web", "172.30.0.1"))
	want(t, "it is ours again, with the same endpoints", nextUpdate(c), setBoth)
	s := newSlice("web-1", "web", "10.180.0.1 n1")
	s.Labels[corev1.IsHeadlessService] = ""
	tracker.SetSlice(s)
	want(t, "a slice that is not for us any more", nextUpdate(c), setNone)
}

func TestRenameIsOneUpdate(t *testing.T) {
	tracker, c, _ := followedTracker(t)
	tracker.SetService(newService("web", "172.30.0.1", func(svc *corev1.Service) { svc.Spec.Ports[0].Name = "www" }))
	want(t, "a port renamed (Q4)", nextUpdate(c), `
		set ns1/web:www/tcp4 [cluster-ip 172.30.0.1:80] = []
		delete ns1/web:http/tcp4`)
}

// fill makes n Services of ten endpoints each.
func fill(tracker *Tracker, n int) {
	for i := range n {
		name := fmt.Sprintf("s%d", i)
		tracker.SetService(newService(name, fmt.Sprintf("172.30.%d.%d", i/250, 1+i%250), created(int64(i))))
		var endpoints []string
		for j := range 10 {
			endpoints = append(endpoints, fmt.Sprintf("10.%d.%d.%d n%d", 180+j, i/250, 1+i%250, j))
		}
		tracker.SetSlice(newSlice(name+"-1", name, endpoints...))
	}
}

// An event with no difference that matters allocates nothing and changes no cursor.
func TestNoChangeAllocatesNothing(t *testing.T) {
	tracker, c, _ := followedTracker(t)
	tracker.SetNode(newNode("n1", "z1"))
	nextUpdate(c)
	svc := newService("web", "172.30.0.1")
	slice := newSlice("web-1", "web", "10.180.0.1 n1", "10.180.1.1 n2")
	for _, o := range []metav1.Object{svc, slice} {
		o.SetResourceVersion("4711")
		o.SetAnnotations(map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-01-01T00:00:00Z"})
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}})
	}
	slice.Endpoints[0].TargetRef = &corev1.ObjectReference{Name: "web-0"}
	slice.Endpoints[0].Conditions.Ready = new(true)
	svc.Spec.Selector = map[string]string{"app": "web"}
	for what, event := range map[string]func(){
		"Service":       func() { tracker.SetService(svc) },
		"EndpointSlice": func() { tracker.SetSlice(slice) },
		"another node":  func() { tracker.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}) },
		"no Service":    func() { tracker.DeleteService("ns1", "none") },
		"no slice":      func() { tracker.DeleteSlice("ns1", "none") },
	} {
		if n := testing.AllocsPerRun(100, event); n != 0 {
			t.Errorf("%s: an event that changes nothing allocates %v times", what, n)
		}
	}
	want(t, "the update", nextUpdate(c), "nothing")
}

func TestNoticesMayCallBack(t *testing.T) {
	var tracker *Tracker
	seen := 0
	tracker = New(func(Notice) { seen += tracker.Counts().Slices })
	tracker.SetSlice(newSlice("web-1", "", "10.180.0.1"))
	if seen != 1 {
		t.Errorf("the notice saw %d slices", seen)
	}
}

func TestStatus(t *testing.T) {
	tracker, notices := newTracker()
	tracker.SetService(newService("web", "172.30.0.1", healthCheck(31000), balancer("203.0.113.1"), nodePort(30080)))
	tracker.SetSlice(newSlice("web-1", "web", "10.180.0.1 n1", "10.180.0.2 n1 unready", "10.180.1.1 n2", "127.0.0.1 n1"))
	tracker.SetService(newService("none", "None"))
	s, ok := tracker.Service(Key{"ns1", "web"})
	if !ok || s.LocalReady.IPv4 != 1 || s.HealthPort != 31000 || len(s.Ports) != 1 || s.Ports[0].Ready != 2 || s.Ports[0].Total != 3 || len(s.Ports[0].Service.Frontends) != 3 {
		t.Errorf("status %+v", s)
	}
	if len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Message, "127.0.0.1 is loopback") || len(*notices) != 1 {
		t.Errorf("problems %q, notices %+v", s.Problems, *notices)
	}
	for s := range tracker.All() {
		if !tracker.mu.TryLock() || s.Name != "web" {
			t.Fatalf("a change waits while the caller handles %s", s.Key)
		}
		tracker.mu.Unlock()
	}
	if c := tracker.Counts(); c != (Counts{Services: 1, Names: 1, Slices: 1, Endpoints: 3}) {
		t.Errorf("counts %+v", c)
	}
	if bad := tracker.Troubled(); len(bad) != 1 || bad[0].Key != s.Key || !slices.Equal(bad[0].Problems, s.Problems) {
		t.Errorf("troubled are %+v", bad)
	}
}
