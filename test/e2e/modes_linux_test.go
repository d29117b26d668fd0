// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/test/apart"
	"github.com/pointsman/pointsman/test/cluster"
)

// A mode is a dataplane with its settings.
type mode struct {
	label   string
	name    string // of the plugin
	options string
	needs   string // a program
	legacy  bool   // its rules are in the legacy tables
	hides   bool   // endpoints do not see the caller
	apart   bool   // the host is an ordinary user, and does not launch the plugins
}

// modes returns the dataplanes that can run together in one kernel, in both forms: with a plugin that the host
// launches, and with one that the host connects to (apart). With POINTSMAN_APART all hosts run apart. POINTSMAN_MODES
// is a pattern for the labels of the modes to test.
func modes() []mode {
	all := []mode{
		{label: "iptables-nft", name: "iptables", options: "backend: nft", needs: "iptables-nft-restore"},
		{label: "iptables-legacy", name: "iptables", options: "backend: legacy", needs: "iptables-legacy-restore", legacy: true, apart: true},
		{label: "nftables", name: "nftables", needs: "nft"},
		{label: "userspace", name: "userspace", options: "backend: nft", needs: "iptables-nft-restore", hides: true, apart: true},
	}
	wanted := regexp.MustCompile(os.Getenv("POINTSMAN_MODES"))
	all = slices.DeleteFunc(all, func(m mode) bool { return !wanted.MatchString(m.label) })
	for i := range all {
		all[i].apart = all[i].apart || apart.Asked()
	}
	return all
}

// TestCluster plays every scenario once, with all dataplanes at the same time.
func TestCluster(t *testing.T) {
	cluster.Need(t)
	var here []mode
	for _, m := range modes() {
		if _, err := exec.LookPath(m.needs); err == nil {
			here = append(here, m)
			continue
		}
		t.Run(m.label, func(t *testing.T) { t.Skipf("needs %s: apt-get install iptables", m.needs) })
	}
	w := newWorld(t, here...)
	t.Run("Stories", func(t *testing.T) {
		w := w.on(t)
		w.start(w.nodes...)
		for _, s := range scenarios() {
			t.Run(s.name, func(t *testing.T) { s.play(w.on(t)) })
		}
	})
	t.Run("Peer", func(t *testing.T) { peer(w.on(t)) })
	t.Run("Verbs", func(t *testing.T) { verbs(w.on(t)) })
	t.Run("Manifests", func(t *testing.T) { manifests(w.on(t)) })
}
