// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestKernelOptions changes an option of the active dataplane in the file, under load: another process takes over with
// it. The backend cannot be changed in this way, as the rules of the old one would stay.
func TestKernelOptions(t *testing.T) {
	n := newNode(t, "iptables")
	n.options = "localhostNodePorts: false"
	n.writeMode("iptables")
	n.start()
	n.expectGuard(false)
	l := n.newLoad()
	before := n.plugin("iptables")
	n.options = "localhostNodePorts: true"
	n.writeMode("iptables")
	n.until("another process serves", n.servesWith("iptables", before))
	n.waitForMode("iptables")
	n.expectGuard(true)

	before = n.plugin("iptables")
	n.options = "localhostNodePorts: true, backend: legacy"
	n.writeMode("iptables")
	n.until("status says why the backend stays", func() error {
		s, err := n.Status(n.Context())
		if err == nil && !strings.Contains(s.Config.Stale, "plugins.iptables.options.backend: cannot change while iptables serves") {
			err = fmt.Errorf("%+v", s.Config)
		}
		return err
	})
	l.done("other options of iptables")
	if now := n.plugin("iptables"); now != before {
		t.Errorf("process %d serves, not %d", now, before)
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
