// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// localPolicy keeps the client's address, and health checks say where to send.
func localPolicy(w *world, _ mode) {
	a, b := w.nodes[0], w.nodes[1]
	s, vip := w.balanced("local", nil, func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	check := func(n *node) string { return fmt.Sprintf("http://%s:%d/", n.addrs[0], s.Spec.HealthCheckNodePort) }
	w.endpoints("local", a.end(0), b.end(0).is(false, false, false))
	w.expect(w.client, "tcp4", vip[0], saw(a.pods[0], backend, w.client.addrs[0]))
	w.expect(w.client, "tcp6", vip[1], saw(a.pods[0], backend, w.client.addrs[1]))
	w.expect(w.client, "tcp4", a.nodePort(s, 0, 0), saw(a.pods[0], backend, w.client.addrs[0]))
	w.expect(w.client, "tcp4", b.nodePort(s, 0, 0), dropped)
	// Those of the node itself may use any endpoint.
	w.expect(b.place, "tcp4", b.nodePort(s, 0, 0), saw(a.pods[0], backend, b.addrs[0]))
	w.expect(b.pods[1], "tcp4", b.nodePort(s, 0, 0), saw(a.pods[0], backend, b.pods[1].addrs[0]))

	body := func(n int) string {
		return fmt.Sprintf(`{"service":{"namespace":"default","name":"local"},"localEndpoints":%d,"serviceProxyHealthy":true}`, n)
	}
	w.hears(w.client, check(a), "200 "+body(2)) // one in each family
	w.hears(w.client, check(b), "503 "+body(0))
	w.endpoints("local", b.end(0))
	w.hears(w.client, check(a), "503 "+body(0))
	w.hears(w.client, check(b), "200 "+body(2))
	w.expect(w.client, "tcp4", a.nodePort(s, 0, 0), dropped)
	w.expect(w.client, "tcp4", b.nodePort(s, 0, 0), saw(b.pods[0], backend, w.client.addrs[0]))
}

// hears asks until the answer is want.
func (w *world) hears(from *place, url, want string) {
	w.Helper()
	w.until("asking "+url, func() error {
		if got := strings.TrimSpace(w.get(from, url)); got != want {
			return fmt.Errorf("%s\nand not\n%s", got, want)
		}
		return nil
	})
}

// internalLocal is answered on the caller's node or not at all.
func internalLocal(w *world, _ mode) {
	a, b := w.nodes[0], w.nodes[1]
	s := w.service("inner", func(s *corev1.Service) {
		local := corev1.ServiceInternalTrafficPolicyLocal
		s.Spec.InternalTrafficPolicy = &local
	})
	w.endpoints("inner", a.end(1))
	w.expect(a.pods[0], "tcp4", at(s, 0, 80), saw(a.pods[1], backend, a.pods[0].addrs[0]))
	w.expect(b.pods[0], "tcp4", at(s, 0, 80), dropped)
	w.endpoints("inner", a.end(1), b.end(1))
	w.expect(b.pods[0], "tcp4", at(s, 0, 80), saw(b.pods[1], backend, b.pods[0].addrs[0]))
}

// readiness takes an endpoint out, and brings it back.
func readiness(w *world, _ mode) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	s := w.service("flip")
	me := pod.addrs[0]
	for range 3 {
		w.endpoints("flip", a.end(1), b.end(0).is(false, false, false))
		w.spread(pod, "tcp4", at(s, 0, 80), saw(a.pods[1], backend, me))
		w.endpoints("flip", a.end(1).is(false, false, false), b.end(0))
		w.spread(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, me))
	}
	w.endpoints("flip", a.end(1).is(false, false, false), b.end(0).is(false, false, false))
	w.expect(pod, "tcp4", at(s, 0, 80), refused)
}

// terminating endpoints are used only where there are no others.
func terminating(w *world, _ mode) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	me := pod.addrs[0]
	s := w.service("ending")
	w.endpoints("ending", a.end(1).is(false, true, true), b.end(0))
	w.spread(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, me))
	w.endpoints("ending", a.end(1).is(false, true, true), b.end(0).is(false, false, true))
	w.spread(pod, "tcp4", at(s, 0, 80), saw(a.pods[1], backend, me))
	w.endpoints("ending", a.end(1).is(false, false, true))
	w.expect(pod, "tcp4", at(s, 0, 80), refused)
}

// zones keep a call near, as hinted, until a node's zone changes.
func zones(w *world, _ mode) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	me := pod.addrs[0]
	s := w.service("near")
	w.endpoints("near", a.end(1).in("zone-a"), b.end(0).in("zone-b"))
	w.spread(pod, "tcp4", at(s, 0, 80), saw(a.pods[1], backend, me))
	w.spread(b.pods[1], "tcp4", at(s, 0, 80), saw(b.pods[0], backend, b.pods[1].addrs[0]))
	w.relabel(a, corev1.LabelTopologyZone, "zone-b")
	w.spread(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, me))
	w.relabel(a, corev1.LabelTopologyZone, "zone-c") // nobody is hinted for it
	w.spread(pod, "tcp4", at(s, 0, 80), saw(a.pods[1], backend, me), saw(b.pods[0], backend, me))
	w.relabel(a, corev1.LabelTopologyZone, "zone-a")
	w.spread(pod, "tcp4", at(s, 0, 80), saw(a.pods[1], backend, me))
}

// affinity keeps a client with its endpoint.
func affinity(w *world, _ mode) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	s := w.service("sticky", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP })
	w.endpoints("sticky", a.end(1), b.end(0), b.end(1))
	var first string
	w.until("sticky answers", func() error {
		if first = call(w.Context(), pod, "tcp4", at(s, 0, 80)); !strings.Contains(first, "saw") {
			return fmt.Errorf("%q", first)
		}
		return nil
	})
	for range 20 {
		if got := call(w.Context(), pod, "tcp4", at(s, 0, 80)); got != first {
			w.Fatalf("%q, and before %q", got, first)
		}
	}
}

// proxyName gives a Service to another proxy, and takes it back.
func proxyName(w *world, _ mode) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	s := w.service("theirs", func(s *corev1.Service) {
		s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "other"}
	})
	w.endpoints("theirs", b.end(0))
	label := func(on bool) {
		w.update("theirs", func(s *corev1.Service) {
			s.Labels = nil
			if on {
				s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "other"}
			}
		})
	}
	w.gone(pod, "tcp4", at(s, 0, 80))
	label(false)
	w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, pod.addrs[0]))
	label(true)
	w.gone(pod, "tcp4", at(s, 0, 80))
}
