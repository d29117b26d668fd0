// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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

// internalLocal is answered on the caller's node or not at all.
func internalLocal(w *world) {
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
func readiness(w *world) {
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
func terminating(w *world) {
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

	// Nor may a Local policy send a client away while one still serves here; but the
	// load balancer hears that it is to send no more.
	local, vip := w.balanced("leaving", func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	})
	w.endpoints("leaving", a.end(1).is(false, true, true), b.end(0))
	w.expect(w.client, "tcp4", vip[0], saw(a.pods[1], backend, w.client.addrs[0]))
	w.expect(w.client, "tcp6", vip[1], saw(a.pods[1], backend, w.client.addrs[1]))
	w.expect(pod, "tcp4", at(local, 0, 80), saw(a.pods[1], backend, me))
	w.hears(w.client, check(a, 0, local), "503 "+checked("leaving", 0))
	w.endpoints("leaving", a.end(1).is(false, true, true), a.end(0), b.end(0))
	w.spread(w.client, "tcp4", vip[0], saw(a.pods[0], backend, w.client.addrs[0]))
}

// check is where a load balancer asks for a Service on n.
func check(n *node, family int, s *corev1.Service) string {
	return fmt.Sprintf("http://%s/", netip.AddrPortFrom(n.addrs[family], uint16(s.Spec.HealthCheckNodePort)))
}

// checked is what it is told, and how many endpoints there are.
func checked(service string, endpoints int) string {
	return fmt.Sprintf("{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": %q\n\t},\n\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": true\n}", service, endpoints)
}

// zones keep a call near, as hinted, until a node's zone changes.
func zones(w *world) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	me := pod.addrs[0]
	s := w.service("near")
	w.endpoints("near", a.end(1).in("zone-a"), b.end(0).in("zone-b"))
	w.spread(pod, "tcp4", at(s, 0, 80), saw(a.pods[1], backend, me))
	w.spread(b.pods[1], "tcp4", at(s, 0, 80), saw(b.pods[0], backend, b.pods[1].addrs[0]))
	w.relabel(a, corev1.LabelTopologyZone, "zone-b")
	w.spread(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, me))
	w.relabel(a, corev1.LabelTopologyZone, "zone-c") // none is hinted for it
	w.spread(pod, "tcp4", at(s, 0, 80), saw(a.pods[1], backend, me), saw(b.pods[0], backend, me))
	w.relabel(a, corev1.LabelTopologyZone, "zone-a")
	w.spread(pod, "tcp4", at(s, 0, 80), saw(a.pods[1], backend, me))
}

// affinity keeps a client with its endpoint.
func affinity(w *world) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	s := w.service("sticky", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP })
	w.endpoints("sticky", a.end(1), b.end(0), b.end(1))
	first := make([]string, len(w.lands))
	w.everywhere("sticky answers", func(l *land) error {
		if first[l.index] = l.call(w.Context(), pod, "tcp4", at(s, 0, 80)); !strings.Contains(first[l.index], "saw") {
			return fmt.Errorf("%q", first[l.index])
		}
		return nil
	})
	for range 20 {
		for _, l := range w.lands {
			if got := l.call(w.Context(), pod, "tcp4", at(s, 0, 80)); got != first[l.index] {
				w.Fatalf("%s: %q, and before %q", l.label, got, first[l.index])
			}
		}
	}
}

// distribution keeps a call near, as hints of either kind say.
func distribution(w *world) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	me := pod.addrs[0]
	near, far := saw(a.pods[1], backend, me), saw(b.pods[0], backend, me)
	s := w.service("close", func(s *corev1.Service) {
		s.Spec.TrafficDistribution = new(corev1.ServiceTrafficDistributionPreferClose)
	})
	ask := func(kind string) {
		w.update("close", func(s *corev1.Service) { s.Spec.TrafficDistribution = &kind })
	}
	here, there := a.end(1).in("zone-a"), b.end(0).in("zone-b")
	w.endpoints("close", here, there)
	w.spread(pod, "tcp4", at(s, 0, 80), near)
	w.endpoints("close", here.is(false, false, false), there) // none is hinted for us
	w.spread(pod, "tcp4", at(s, 0, 80), far)
	ask(corev1.ServiceTrafficDistributionPreferSameZone)
	w.endpoints("close", here, there)
	w.spread(pod, "tcp4", at(s, 0, 80), near)

	ask(corev1.ServiceTrafficDistributionPreferSameNode)
	w.endpoints("close", here.of("node-b"), there.of("node-a")) // the node counts, and not the zone
	for _, n := range networks {
		w.spread(pod, n.network, at(s, n.family, n.port), saw(b.pods[0], backend, pod.addrs[n.family]))
	}
	w.endpoints("close", here.of("node-b"), there) // the other's controller has not seen it yet
	w.spread(pod, "tcp4", at(s, 0, 80), near)
	w.endpoints("close", here.of("node-b"), there.of("node-c")) // no node of ours
	w.spread(pod, "tcp4", at(s, 0, 80), near)
	w.endpoints("close", here.of("node-b"), there.of("node-a").is(false, true, true))
	w.spread(pod, "tcp4", at(s, 0, 80), near)

	w.update("close", func(s *corev1.Service) { s.Spec.TrafficDistribution = nil })
	w.endpoints("close", a.end(1), b.end(0))
	w.spread(pod, "tcp4", at(s, 0, 80), near, far)
}

// proxyName gives a Service to another proxy, and takes it back.
func proxyName(w *world) {
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

// headlessLabel takes slices, and a Service, out of what is served, and gives them
// back.
func headlessLabel(w *world) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	s := w.service("headed")
	w.endpoints("headed", b.end(0))
	w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, pod.addrs[0]))
	w.behead("headed", true)
	w.expect(pod, "tcp4", at(s, 0, 80), refused)
	w.behead("headed", false)
	w.expect(pod, "tcp6", at(s, 1, 80), saw(b.pods[0], backend, pod.addrs[1]))
	w.update("headed", func(s *corev1.Service) { s.Labels = map[string]string{corev1.IsHeadlessService: ""} })
	w.gone(pod, "tcp4", at(s, 0, 80))
	w.update("headed", func(s *corev1.Service) { s.Labels = nil })
	w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, pod.addrs[0]))
}

// behead labels the slices of a Service as a headless one's, or not.
func (w *world) behead(service string, on bool) {
	w.Helper()
	w.eachSlice(service, func(s *discoveryv1.EndpointSlice) {
		delete(s.Labels, corev1.IsHeadlessService)
		if on {
			s.Labels[corev1.IsHeadlessService] = ""
		}
	})
}
