// SPDX-License-Identifier: Apache-2.0

package track

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// One of two Services with the same address and port owns it (contract line 10), whichever
// came first.
func TestOwner(t *testing.T) {
	at := func(port int32) func(*corev1.Service) {
		return func(svc *corev1.Service) { svc.Spec.Ports[0].Port = port }
	}
	ipv6 := func(ip string) func(*corev1.Service) {
		return func(svc *corev1.Service) { svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, ip) }
	}
	udp := func(svc *corev1.Service) { svc.Spec.Ports[0].Protocol = corev1.ProtocolUDP }
	tests := []struct {
		name          string
		winner, loser *corev1.Service
		contested     string // empty: none
	}{
		{"cluster IP before external IP", newService("b", "172.30.0.2", created(9)), newService("a", "172.30.0.1", created(1), externalIPs("172.30.0.2")), "external-ip 172.30.0.2:80"},
		{"cluster IP at every port", newService("b", "172.30.0.2", created(9)), newService("a", "172.30.0.1", created(1), externalIPs("172.30.0.2"), at(8443)), "external-ip 172.30.0.2:8443"},
		{"IPv6 cluster IP at every port", newService("b", "172.30.0.2", created(9), ipv6("fd00::2")), newService("a", "172.30.0.1", created(1), ipv6("fd00::1"), externalIPs("fd00::2"), at(8443)), "external-ip [fd00::2]:8443"},
		{"but not before a load balancer IP", newService("b", "172.30.0.2", created(9)), newService("a", "172.30.0.1", created(1), balancer("172.30.0.2"), at(8443)), ""},
		{"nor before the same Service", newService("b", "172.30.0.2", externalIPs("172.30.0.2"), at(8443)), newService("a", "172.30.0.1"), ""},
		{"cluster IP before load balancer", newService("b", "172.30.0.2", created(9)), newService("a", "172.30.0.1", created(1), balancer("172.30.0.2")), "load-balancer 172.30.0.2:80"},
		{"load balancer before external IP", newService("b", "172.30.0.2", created(9), balancer("203.0.113.1")), newService("a", "172.30.0.1", created(1), externalIPs("203.0.113.1")), "external-ip 203.0.113.1:80"},
		{"then the older Service", newService("b", "172.30.0.2", created(1), externalIPs("203.0.113.1")), newService("a", "172.30.0.1", created(2), externalIPs("203.0.113.1")), "external-ip 203.0.113.1:80"},
		{"then by name", newService("a", "172.30.0.2", externalIPs("203.0.113.1")), newService("b", "172.30.0.1", externalIPs("203.0.113.1")), "external-ip 203.0.113.1:80"},
		{"node ports", newService("a", "172.30.0.2", nodePort(30080)), newService("b", "172.30.0.1", nodePort(30080)), "node-port *:30080"},
		{"health check node ports", newService("a", "172.30.0.2", healthCheck(31000)), newService("b", "172.30.0.1", healthCheck(31000)), "health check node port 31000"},
		{"cluster IPs", newService("a", "172.30.0.1"), newService("b", "172.30.0.1"), "cluster-ip 172.30.0.1:80"},
		{"the same port with another protocol", newService("a", "172.30.0.1"), newService("b", "172.30.0.1", udp), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, order := range [][]*corev1.Service{{tt.winner, tt.loser}, {tt.loser, tt.winner}} {
				tracker, notices := newTracker()
				for _, svc := range order {
					tracker.SetService(svc)
				}
				checkOwner(t, tracker, tt.winner.Name, tt.loser.Name, tt.contested)
				if tt.contested != "" && !slices.Contains(reasons(*notices), "FrontendTaken ns1/"+tt.loser.Name) {
					t.Errorf("no notice about the loser: %+v", *notices)
				}

				tracker.DeleteService("ns1", tt.winner.Name)
				if s, _ := tracker.Service(Key{"ns1", tt.loser.Name}); len(s.Problems) != 0 {
					t.Errorf("after the owner was deleted: %q", s.Problems)
				}
			}
		})
	}
}

func checkOwner(t *testing.T, tracker *Tracker, winner, loser, contested string) {
	t.Helper()
	w, _ := tracker.Service(Key{"ns1", winner})
	l, _ := tracker.Service(Key{"ns1", loser})
	if len(w.Problems) != 0 {
		t.Errorf("the winner has problems: %q", w.Problems)
	}
	var got string
	for i, p := range l.Problems {
		got += strings.Repeat("\n", min(i, 1)) + p.Message
	}
	if contested == "" && got != "" || contested != "" && got != contested+" belongs to Service ns1/"+winner+"; it is not served for this one" {
		t.Errorf("the loser's problems: %q, want %q", got, contested)
	}
}

// When the owner gives up a frontend, the same update sets the next owner.
func TestNextOwnerInTheSameUpdate(t *testing.T) {
	tracker, notices := newTracker()
	c := tracker.Cursor(everything)
	tracker.SetService(newService("a", "172.30.0.1", created(1), externalIPs("203.0.113.1")))
	tracker.SetService(newService("b", "172.30.0.2", created(2), externalIPs("203.0.113.1")))
	tracker.SetService(newService("c", "172.30.0.3", created(3), externalIPs("203.0.113.1")))
	want(t, "the oldest Service owns it", nextUpdate(c), `
		full
		set ns1/a:http/tcp4 [cluster-ip 172.30.0.1:80 external-ip 203.0.113.1:80] = []
		set ns1/b:http/tcp4 [cluster-ip 172.30.0.2:80] = []
		set ns1/c:http/tcp4 [cluster-ip 172.30.0.3:80] = []`)
	tracker.SetService(newService("a", "172.30.0.1", created(1)))
	want(t, "the owner gives it up", nextUpdate(c), `
		set ns1/a:http/tcp4 [cluster-ip 172.30.0.1:80] = []
		set ns1/b:http/tcp4 [cluster-ip 172.30.0.2:80 external-ip 203.0.113.1:80] = []`)
	tracker.SetService(newService("d", "203.0.113.1", created(9)))
	want(t, "a Service with the address as cluster IP owns it", nextUpdate(c), `
		set ns1/b:http/tcp4 [cluster-ip 172.30.0.2:80] = []
		set ns1/d:http/tcp4 [cluster-ip 203.0.113.1:80] = []`)
	tracker.DeleteService("ns1", "d")
	want(t, "and is deleted", nextUpdate(c), `
		set ns1/b:http/tcp4 [cluster-ip 172.30.0.2:80 external-ip 203.0.113.1:80] = []
		delete ns1/d:http/tcp4`)
	for _, n := range *notices {
		if n.Reason != FrontendTaken {
			t.Errorf("unexpected notice %+v", n)
		}
	}
}

// A Service without frontends of its own is not served, until it owns one again.
func TestServiceWithoutFrontends(t *testing.T) {
	tracker, _ := newTracker()
	c := tracker.Cursor(everything)
	tracker.SetService(newService("a", "172.30.0.1"))
	tracker.SetService(newService("b", "172.30.0.1"))
	want(t, "one of two Services", nextUpdate(c), "full\nset ns1/a:http/tcp4 [cluster-ip 172.30.0.1:80] = []")
	tracker.DeleteService("ns1", "a")
	want(t, "after it was deleted", nextUpdate(c), `
		set ns1/b:http/tcp4 [cluster-ip 172.30.0.1:80] = []
		delete ns1/a:http/tcp4`)
}
