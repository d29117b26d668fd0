// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	corev1 "k8s.io/api/core/v1"
)

// types makes one Service each type that there is. Where it answered as another type,
// it answers no more.
func types(w *world) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	s := w.service("shape")
	w.endpoints("shape", b.end(0))
	inside, me := at(s, 0, 80), pod.addrs[0]
	w.expect(pod, "tcp4", inside, saw(b.pods[0], backend, me))

	s = w.retype("shape", corev1.ServiceTypeNodePort)
	door := a.nodePort(s, 0, 0)
	w.expect(w.client, "tcp4", door, saw(b.pods[0], backend, a.addrs[0]))
	w.expect(pod, "tcp4", inside, saw(b.pods[0], backend, me))

	s, vip := w.ingress(w.retype("shape", corev1.ServiceTypeLoadBalancer), nil)
	w.expect(w.client, "tcp4", vip[0], saw(b.pods[0], backend, a.addrs[0]))
	w.expect(w.client, "tcp6", vip[1], saw(b.pods[0], backend, a.addrs[1]))
	w.expect(w.client, "tcp4", a.nodePort(s, 0, 0), saw(b.pods[0], backend, a.addrs[0]))

	nowhere := func() {
		w.Helper()
		w.gone(pod, "tcp4", inside)
		w.expect(w.client, "tcp4", door, refused) // by the node itself
		w.gone(w.client, "tcp4", vip[0])
		w.gone(w.client, "tcp6", vip[1])
	}
	w.retype("shape", corev1.ServiceTypeExternalName)
	nowhere()
	w.update("shape", func(s *corev1.Service) { // headless
		s.Spec.Type, s.Spec.ExternalName, s.Spec.ClusterIP = corev1.ServiceTypeClusterIP, "", corev1.ClusterIPNone
	})
	nowhere()
	w.retype("shape", corev1.ServiceTypeExternalName) // an address is given to one that comes from here
	s = w.retype("shape", corev1.ServiceTypeClusterIP)
	w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, me))
	s = w.retype("shape", corev1.ServiceTypeLoadBalancer)
	w.expect(w.client, "tcp4", a.nodePort(s, 0, 0), saw(b.pods[0], backend, a.addrs[0]))
	s = w.retype("shape", corev1.ServiceTypeClusterIP)
	w.expect(w.client, "tcp4", door, refused)
	w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, me))
}

// retype changes the type of a Service, and nothing that the API does not change with
// it.
func (w *world) retype(name string, to corev1.ServiceType) *corev1.Service {
	w.Helper()
	return w.update(name, func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalName = to, ""
		if to == corev1.ServiceTypeExternalName {
			s.Spec.ExternalName = "elsewhere.example"
		}
		if to == corev1.ServiceTypeClusterIP {
			for i := range s.Spec.Ports {
				s.Spec.Ports[i].NodePort = 0
			}
		}
	})
}

// stacks gives a Service of one family the other one too, and takes it away.
func stacks(w *world) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	policy := func(p corev1.IPFamilyPolicy) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.IPFamilyPolicy = &p }
	}
	s := w.service("stack", policy(corev1.IPFamilyPolicySingleStack))
	w.endpoints("stack", b.end(0)) // in both families
	w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, pod.addrs[0]))
	s = w.update("stack", policy(corev1.IPFamilyPolicyRequireDualStack))
	second := at(s, 1, 80)
	w.expect(pod, "tcp6", second, saw(b.pods[0], backend, pod.addrs[1]))
	s = w.update("stack", policy(corev1.IPFamilyPolicySingleStack))
	w.gone(pod, "tcp6", second)
	w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, pod.addrs[0]))

	s = w.service("six", policy(corev1.IPFamilyPolicySingleStack), func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} })
	w.endpoints("six", b.end(1))
	w.expect(pod, "tcp6", at(s, 0, 80), saw(b.pods[1], backend, pod.addrs[1]))
	w.expect(pod, "udp6", at(s, 0, 53), saw(b.pods[1], backend, pod.addrs[1]))
}
