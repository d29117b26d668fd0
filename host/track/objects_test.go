// SPDX-License-Identifier: Apache-2.0

package track

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/sdk"
)

// newService returns ns1/name with one port, 80/TCP, with that cluster IP.
func newService(name, clusterIP string, edits ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns1", Name: name},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeClusterIP,
			ClusterIP:  clusterIP,
			ClusterIPs: []string{clusterIP},
			Ports:      []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	for _, edit := range edits {
		edit(svc)
	}
	return svc
}

func externalIPs(ips ...string) func(*corev1.Service) {
	return func(svc *corev1.Service) { svc.Spec.ExternalIPs = ips }
}

func balancer(vip string, ranges ...string) func(*corev1.Service) {
	return func(svc *corev1.Service) {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: vip}}
		svc.Spec.LoadBalancerSourceRanges = ranges
	}
}

func nodePort(n int32) func(*corev1.Service) {
	return func(svc *corev1.Service) {
		if svc.Spec.Type == corev1.ServiceTypeClusterIP {
			svc.Spec.Type = corev1.ServiceTypeNodePort
		}
		svc.Spec.Ports[0].NodePort = n
	}
}

func created(seconds int64) func(*corev1.Service) {
	return func(svc *corev1.Service) { svc.CreationTimestamp = metav1.Unix(seconds, 0) }
}

func healthCheck(n int32) func(*corev1.Service) {
	return func(svc *corev1.Service) {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		svc.Spec.HealthCheckNodePort = n
	}
}

// newSlice returns an IPv4 slice of ns1/service with port http 8080 and these
// endpoints, each "ADDRESS [NODE [unready|leaving]]".
func newSlice(name, service string, endpoints ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns1", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
	}
	for _, text := range endpoints {
		slice.Endpoints = append(slice.Endpoints, newEndpoint(text))
	}
	return slice
}

func newEndpoint(text string) discoveryv1.Endpoint {
	words := append(strings.Fields(text), "", "")
	ep := discoveryv1.Endpoint{Addresses: []string{words[0]}}
	if words[1] != "" {
		ep.NodeName = &words[1]
	}
	switch words[2] {
	case "unready":
		ep.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false)}
	case "leaving":
		ep.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	}
	return ep
}

func newNode(name, zone string, addrs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	for _, a := range addrs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

var everything = sdk.Description{Name: "test", Features: sdk.Features}

// newTracker returns a synced tracker for node n1, and its notices.
func newTracker() (*Tracker, *[]Notice) {
	var notices []Notice
	t := New(func(n Notice) { notices = append(notices, n) })
	t.Configure(Facts{NodeName: "n1", NodeAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}})
	t.Synced()
	return t, &notices
}

// nextUpdate acknowledges the next update and returns it as text; "nothing" if there is none.
func nextUpdate(c *Cursor) string {
	u, ok := c.Next()
	if !ok {
		return "nothing"
	}
	c.Ack(u.To, nil)
	return text(u)
}

func text(u sdk.Update) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if u.Full {
		line("full")
	}
	for _, s := range u.Set {
		line("set %s %v = %v", s.Name, s.Frontends, s.Cluster)
	}
	for _, n := range u.Delete {
		line("delete %s", n)
	}
	return strings.TrimSpace(b.String())
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if want = dedent(want); got != want {
		t.Errorf("%s:\ngot\n%s\nwant\n%s", what, got, want)
	}
}

func dedent(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}

func reasons(notices []Notice) []string {
	var list []string
	for _, n := range notices {
		list = append(list, n.Reason+" "+n.Object)
	}
	slices.Sort(list)
	return list
}
