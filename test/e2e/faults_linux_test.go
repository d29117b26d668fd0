// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// portRenamed renames the port of a Service and of its endpoints under load.
func portRenamed(w *world) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	s := w.service("renamed")
	w.endpoints("renamed", b.readyEndpoint(0))
	w.expect(pod, "tcp4", at(s, 0, 80), answerOf(b.pods[0], backend, pod.addrs[0]))
	l := w.startLoad(pod, at(s, 0, 80))
	for i := range 5 {
		name, number := fmt.Sprintf("p%d", i), int32([]uint16{renamed, backend}[i%2])
		w.addPortName("renamed", name, number) // the new name is added before the old one is removed, as in any careful change
		w.waitForSlices(name)                  // a host watches slices and Services separately: neither waits for the other
		w.update("renamed", func(s *corev1.Service) { s.Spec.Ports[0].Name = name })
		w.expect(pod, "tcp4", at(s, 0, 80), answerOf(b.pods[0], uint16(number), pod.addrs[0]))
	}
	w.result(l)
}

// waitForSlices waits until every host has received all EndpointSlices written so far. It writes one more, of a Service
// that does not exist, which arrives by the same watch after the others.
func (w *world) waitForSlices(mark string) {
	w.Helper()
	before := w.slices()
	w.endpoints("mark-"+mark, w.nodes[0].readyEndpoint(0))
	w.Cleanup(func() { w.remove("mark-" + mark) })
	w.inEachLand("the hosts see slices", func(l *land) error {
		for i, count := range w.slices()[l.index] {
			if had := before[l.index][i]; count < had+2 {
				return fmt.Errorf("the host of %s has received %d slices; before it had %d", w.nodes[i].name, count, had)
			}
		}
		return nil
	})
}

// slices returns how many EndpointSlices the hosts have seen, by land and node.
func (w *world) slices() (seen [][]int) {
	w.Helper()
	for i := range w.lands {
		var here []int
		for _, n := range w.nodes {
			s, err := n.machines[i].Status(w.Context())
			if err != nil {
				w.Fatal(err)
			}
			here = append(here, s.Services.EndpointSlices)
		}
		seen = append(seen, here)
	}
	return seen
}

// addPortName adds a port with another name to the slices of a Service.
func (w *world) addPortName(service, name string, number int32) {
	w.Helper()
	w.eachSlice(service, func(s *discoveryv1.EndpointSlice) {
		tcp := s.Ports[0]
		tcp.Name, tcp.Port = &name, &number
		s.Ports = append(s.Ports, tcp)
	})
}

// events checks that the host of each land writes events about the Node and about Services to the cluster.
func events(w *world) {
	first := w.service("first", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"203.0.113.77"} })
	second := w.service("second", func(s *corev1.Service) { s.Spec.ExternalIPs = first.Spec.ExternalIPs })
	w.endpoints("second", w.nodes[0].readyEndpoint(0))
	for reason, about := range map[string]string{"Starting": "Node " + w.nodes[0].name, "FrontendTaken": "Service " + second.Name} {
		w.until("there is an event "+reason+" of "+about, func() error {
			list, err := w.kube.EventsV1().Events(namespace).List(w.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			most := 0
			notes := make(map[string]int) // the hosts of all lands write the same
			for _, e := range list.Items {
				if e.ReportingController == "pointsman" && e.ReportingInstance == w.nodes[0].name && e.Reason == reason && e.Regarding.Kind+" "+e.Regarding.Name == about {
					note, _, _ := strings.Cut(e.Note, " in mode ")
					notes[note]++
					most = max(most, notes[note])
				}
			}
			if most < len(w.lands) {
				return fmt.Errorf("of %d events, at most %d have the same text, and there are %d lands: %v", len(list.Items), most, len(w.lands), notes)
			}
			return nil
		})
	}
}

// disconnect disconnects the node from the API server, in each land.
func (n *node) disconnect() {
	for _, m := range n.machines {
		m.way.cut()
	}
}

// reconnect undoes disconnect.
func (w *world) reconnect(n *node) {
	w.Helper()
	for _, m := range n.machines {
		if err := m.way.open(); err != nil {
			w.Fatal(err)
		}
	}
}

// watchExpired restarts the API server over an etcd that has compacted the revisions of the watches.
func watchExpired(w *world) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	s := w.service("expired")
	w.endpoints("expired", b.readyEndpoint(0))
	w.expect(pod, "tcp4", at(s, 0, 80), answerOf(b.pods[0], backend, pod.addrs[0]))
	l := w.startLoad(pod, at(s, 0, 80))
	a.disconnect()
	w.endpoints("expired", b.readyEndpoint(1))
	w.remove("expired-not") // one more revision
	w.api.StopServer()
	w.api.Compact()
	w.api.StartServer()
	w.reconnect(a)
	w.expect(pod, "tcp4", at(s, 0, 80), answerOf(b.pods[1], backend, pod.addrs[0]))
	w.result(l)
	for _, n := range w.nodes {
		w.waitUntilServed(n)
	}
}

// hostKilled kills the host, changes what it serves, and starts it again.
func hostKilled(w *world) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	s := w.service("orphan")
	gone := w.service("gone")
	w.endpoints("orphan", b.readyEndpoint(0))
	w.endpoints("gone", b.readyEndpoint(0))
	for _, s := range []*corev1.Service{s, gone} {
		w.expect(pod, "tcp4", at(s, 0, 80), answerOf(b.pods[0], backend, pod.addrs[0]))
	}
	l := w.startLoad(pod, at(s, 0, 80))
	for _, m := range a.machines {
		w.signal(m, syscall.SIGKILL)
	}
	w.endpoints("orphan", b.readyEndpoint(1))
	w.remove("gone")
	w.expect(pod, "tcp4", at(s, 0, 80), answerOf(b.pods[0], backend, pod.addrs[0]))
	for _, m := range a.machines {
		w.launch(m)
	}
	w.waitUntilServed(a)
	w.expect(pod, "tcp4", at(s, 0, 80), answerOf(b.pods[1], backend, pod.addrs[0]))
	w.expectNone(pod, "tcp4", at(gone, 0, 80))
	w.result(l)
}
