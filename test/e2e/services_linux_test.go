// SPDX-License-Identifier: Apache-2.0

package e2e

import ()

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
