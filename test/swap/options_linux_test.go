// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestKernelOptions changes an option of the active dataplane in the file, under load: another process takes over with
// it, or another session of a process that the host does not launch. An option that is refused, or that cannot be changed
// because the rules of the old one would stay, is not taken.
func TestKernelOptions(t *testing.T) {
	for name, c := range map[string]struct {
		begin        func(*testing.T, string) *node
		refused, why string
	}{
		"launched": {newNode, "localhostNodePorts: true, backend: legacy", "plugins.iptables.options.backend: cannot change while iptables serves"},
		"unit":     {newApart, "localhostNodePorts: perhaps", "plugins.iptables.options.localhostNodePorts: want a bool"},
	} {
		t.Run(name, func(t *testing.T) {
			n := c.begin(t, "iptables")
			n.options = "localhostNodePorts: false"
			n.writeMode("iptables")
			n.start()
			n.expectGuard(false)
			l := n.newLoad()
			before := n.plugin("iptables")
			n.options = "localhostNodePorts: true"
			n.writeMode("iptables")
			if n.kept == nil {
				n.until("another process serves", n.servesWith("iptables", before))
				n.waitForMode("iptables")
				before = n.plugin("iptables")
			}
			n.expectGuard(true)
			n.options = c.refused
			n.writeMode("iptables")
			n.until("status says why the options are not taken", func() error {
				s, err := n.Status(n.Context())
				if err == nil && !strings.Contains(s.Config.Stale, c.why) {
					err = fmt.Errorf("%+v", s.Config)
				}
				return err
			})
			n.update(1)
			n.expectGuard(true)
			l.done("other options of iptables")
			if now := n.plugin("iptables"); now != before {
				t.Errorf("process %d serves, not %d", now, before)
			}
		})
	}
}

// expectGuard waits until the chain that guards 127.0.0.0/8 exists or does not.
func (n *node) expectGuard(want bool) {
	n.Helper()
	n.until(fmt.Sprintf("KUBE-LOCALNET-GUARD exists: %v", want), func() error {
		out, err := exec.Command("iptables-save", "-t", "filter").CombinedOutput()
		serves := strings.Contains(string(out), ":KUBE-NODEPORTS ")
		if err == nil && (!serves || strings.Contains(string(out), ":KUBE-LOCALNET-GUARD ") != want) {
			err = fmt.Errorf("table filter is %s", out)
		}
		return err
	})
}
