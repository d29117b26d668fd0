// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// networks lists where the ports of service() answer.
var networks = []struct {
	network string
	family  int
	port    uint16
	index   int // index in the Service's list
}{{"tcp4", 0, 80, 0}, {"udp4", 0, 53, 1}, {"tcp6", 1, 80, 0}, {"udp6", 1, 53, 1}}

// clusterIP creates a Service, calls it until all endpoints have answered, changes it, and deletes it.
func clusterIP(w *world) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	s := w.service("web")
	w.expect(pod, "tcp4", at(s, 0, 80), refused) // without endpoints
	w.endpoints("web", a.readyEndpoint(1), b.readyEndpoint(0))
	for _, n := range networks {
		me := pod.addrs[n.family]
		w.expectSpread(pod, n.network, at(s, n.family, n.port), answerOf(a.pods[1], backend, me), answerOf(b.pods[0], backend, me))
	}
	node := a.addrs[0]
	w.expectSpread(a.place, "tcp4", at(s, 0, 80), answerOf(a.pods[1], backend, node), answerOf(b.pods[0], backend, node))

	w.endpoints("web", a.readyEndpoint(0)) // the caller itself, which must not see its own address
	w.expect(pod, "tcp4", at(s, 0, 80), answerOf(pod, backend, node))
	w.endpoints("web")
	w.expect(pod, "tcp4", at(s, 0, 80), refused)
	w.endpoints("web", b.readyEndpoint(1))
	w.expect(pod, "udp6", at(s, 1, 53), answerOf(b.pods[1], backend, pod.addrs[1]))
	w.remove("web")
	w.expectNone(pod, "tcp4", at(s, 0, 80))
}

// balanced creates a LoadBalancer whose addresses lead to node-a.
func (w *world) balanced(name string, edits ...func(*corev1.Service)) (*corev1.Service, [2]netip.AddrPort) {
	w.Helper()
	s := w.service(name, append(edits, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer })...)
	return w.ingress(s, nil)
}

// ingress gives s addresses, which lead to node-a, as a cloud's controller does.
func (w *world) ingress(s *corev1.Service, mode *corev1.LoadBalancerIPMode) (*corev1.Service, [2]netip.AddrPort) {
	w.Helper()
	s.Status.LoadBalancer.Ingress = nil
	var doors [2]netip.AddrPort
	for i, vip := range []netip.Addr{addr("203.0.113.10"), addr("2001:db8:1b::10")} {
		w.routeTo(vip, w.nodes[0].place)
		doors[i] = netip.AddrPortFrom(vip, 80)
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: vip.String(), IPMode: mode})
	}
	s, err := w.kube.CoreV1().Services(namespace).UpdateStatus(w.Context(), s, metav1.UpdateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return s, doors
}

// loadBalancer calls addresses of a load balancer, also one in the mode Proxy, which nodes leave to the proxy.
func loadBalancer(w *world) {
	a, b := w.nodes[0], w.nodes[1]
	s, vip := w.balanced("lb")
	w.endpoints("lb", b.readyEndpoint(0))
	w.expect(w.client, "tcp4", vip[0], answerOf(b.pods[0], backend, a.addrs[0]))
	w.expect(w.client, "tcp6", vip[1], answerOf(b.pods[0], backend, a.addrs[1]))
	w.expect(a.pods[0], "tcp4", vip[0], answerOf(b.pods[0], backend, a.addrs[0]))

	s, _ = w.ingress(s, new(corev1.LoadBalancerIPModeProxy))
	w.routeTo(vip[0].Addr(), w.client) // the proxy's, which does not exist
	w.inEachLand("the proxy's address is left to it", func(l *land) error {
		if got := l.call(w.Context(), a.pods[0], "tcp4", vip[0]); strings.Contains(got, "saw") {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	w.expect(w.client, "tcp4", a.nodePort(s, 0, 0), answerOf(b.pods[0], backend, a.addrs[0]))
	s, _ = w.ingress(s, new(corev1.LoadBalancerIPModeVIP))
	w.expect(w.client, "tcp4", vip[0], answerOf(b.pods[0], backend, a.addrs[0]))
	w.expect(w.client, "tcp6", vip[1], answerOf(b.pods[0], backend, a.addrs[1]))

	w.update("lb", func(s *corev1.Service) {
		s.Spec.AllocateLoadBalancerNodePorts = new(false)
		for i := range s.Spec.Ports {
			s.Spec.Ports[i].NodePort = 0
		}
	})
	w.expect(w.client, "tcp4", a.nodePort(s, 0, 0), refused)
	w.expect(w.client, "tcp4", vip[0], answerOf(b.pods[0], backend, a.addrs[0]))
	w.expect(w.client, "tcp6", vip[1], answerOf(b.pods[0], backend, a.addrs[1]))
}
