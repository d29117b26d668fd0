// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os/exec"
	"testing"
)

// A mode is a dataplane, and how it is set.
type mode struct {
	label   string
	name    string // of the plugin
	options string
	needs   string // a program
	keeps   bool   // its rules serve while its process is away
	hides   bool   // endpoints do not see who calls
}

func modes() []mode {
	return []mode{
		{label: "iptables-nft", name: "iptables", options: "backend: nft", needs: "iptables-nft-restore", keeps: true},
		{label: "iptables-legacy", name: "iptables", options: "backend: legacy", needs: "iptables-legacy-restore", keeps: true},
		{label: "userspace", name: "userspace", needs: "iptables", hides: true},
	}
}

// TestCluster runs every scenario on every dataplane.
func TestCluster(t *testing.T) {
	w := newWorld(t)
	for i, m := range modes() {
		t.Run(m.label, func(t *testing.T) {
			if _, err := exec.LookPath(m.needs); err != nil {
				t.Skipf("needs %s: apt-get install iptables", m.needs)
			}
			w := w.on(t)
			w.hides = m.hides
			for _, n := range w.nodes {
				w.configure(n, m)
				w.start(n)
				t.Cleanup(func() { w.stop(n) })
			}
			for _, s := range scenarios() {
				if s.once && i > 0 {
					continue
				}
				t.Run(s.name, func(t *testing.T) { s.play(w.on(t), m) })
			}
		})
	}
	t.Run("Verbs", func(t *testing.T) { verbs(w.on(t)) })
	t.Run("Manifests", func(t *testing.T) { manifests(w.on(t)) })
}
