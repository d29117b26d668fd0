// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// localPolicy keeps the client's address, and health checks say where to send.
func localPolicy(w *world) {
	a, b := w.nodes[0], w.nodes[1]
	s, vip := w.balanced("local", func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	w.endpoints("local", a.end(0), b.end(0).is(false, false, false))
	w.expect(w.client, "tcp4", vip[0], saw(a.pods[0], backend, w.client.addrs[0]))
	w.expect(w.client, "tcp6", vip[1], saw(a.pods[0], backend, w.client.addrs[1]))
	w.expect(w.client, "tcp4", a.nodePort(s, 0, 0), saw(a.pods[0], backend, w.client.addrs[0]))
	w.expect(w.client, "tcp4", b.nodePort(s, 0, 0), dropped)
	// Those of the node itself may use any endpoint.
	w.expect(b.place, "tcp4", b.nodePort(s, 0, 0), saw(a.pods[0], backend, b.addrs[0]))
	w.expect(b.pods[1], "tcp4", b.nodePort(s, 0, 0), saw(a.pods[0], backend, b.pods[1].addrs[0]))

	for family := range 2 {
		w.hears(w.client, check(a, family, s), "200 "+checked("local", 1))
		w.hears(w.client, check(b, family, s), "503 "+checked("local", 0))
	}
	w.endpoints("local", b.end(0), b.end(1))
	for family := range 2 {
		w.hears(w.client, check(a, family, s), "503 "+checked("local", 0))
		w.hears(w.client, check(b, family, s), "200 "+checked("local", 2))
	}
	w.expect(w.client, "tcp4", a.nodePort(s, 0, 0), dropped)
	w.spread(w.client, "tcp4", b.nodePort(s, 0, 0), saw(b.pods[0], backend, w.client.addrs[0]), saw(b.pods[1], backend, w.client.addrs[0]))
}

// check is where a load balancer asks for a Service on n.
func check(n *node, family int, s *corev1.Service) string {
	return fmt.Sprintf("http://%s/", netip.AddrPortFrom(n.addrs[family], uint16(s.Spec.HealthCheckNodePort)))
}

// checked is what it is told, and how many endpoints there are.
func checked(service string, endpoints int) string {
	return fmt.Sprintf("{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": %q\n\t},\n\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": true\n}", service, endpoints)
}
