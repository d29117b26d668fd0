// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"

	"github.com/pointsman/pointsman/host/admin"
)

// swapServerAway changes the mode of a node without connection to the API server, and back, under load. What changed
// meanwhile is served afterwards.
func swapServerAway(w *world) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	s := w.service("points")
	w.endpoints("points", b.readyEndpoint(0))
	w.expect(pod, "tcp4", at(s, 0, 80), answerOf(b.pods[0], backend, pod.addrs[0]))
	l := w.startLoad(pod, at(s, 0, 80))
	a.disconnect()
	w.endpoints("points", b.readyEndpoint(1))
	w.inEachLand("the host says so", func(l *land) error { return a.machines[l.index].warns(w.Context(), "W008") })
	for _, m := range a.machines {
		if _, err := m.SwapMode(w.Context(), admin.SwapAsk{To: other(m.land.name)}); err != nil {
			w.Errorf("%s: %v", m.land.label, err)
		}
	}
	w.inEachLand("the other mode serves", func(l *land) error { return a.machines[l.index].servesAtRest(w, other(l.name)) })
	for _, m := range a.machines {
		if _, err := m.ResetMode(w.Context()); err != nil {
			w.Errorf("%s: %v", m.land.label, err)
		}
	}
	w.inEachLand("the mode before serves", func(l *land) error { return a.machines[l.index].servesAtRest(w, l.name) })
	w.expect(pod, "tcp4", at(s, 0, 80), answerOf(b.pods[0], backend, pod.addrs[0]))
	w.reconnect(a)
	w.expect(pod, "tcp4", at(s, 0, 80), answerOf(b.pods[1], backend, pod.addrs[0]))
	w.result(l)
	w.waitUntilServed(a)
}

// other returns a mode to swap to.
func other(mode string) string {
	if mode == "userspace" {
		return "iptables"
	}
	return "userspace"
}

// servesAtRest reports whether mode serves and no swap is in progress.
func (m *machine) servesAtRest(w *world, mode string) error {
	now, err := m.Mode(w.Context())
	if err == nil && (now.Mode != mode || now.Swap != nil) {
		err = fmt.Errorf("mode %s, swap %+v, last %+v", now.Mode, now.Swap, now.Last)
	}
	return err
}
