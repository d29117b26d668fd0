// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestKernelOptions changes an option of the dataplane that serves, in the file, under load: another
// process takes over with it. The backend is not changed so, or the former one's rules would stay.
func TestKernelOptions(t *testing.T) {
	n := newNode(t, "iptables")
	n.options = "comments: never"
	n.mode("iptables")
	n.start()
	n.commented(false)
	l := n.newLoad()
	before := n.plugin("iptables")
	n.options = "comments: always"
	n.mode("iptables")
	n.until("another process serves", long, n.servesWith("iptables", before))
	n.settled("iptables")
	n.commented(true)

	before = n.plugin("iptables")
	n.options = "comments: always, backend: legacy"
	n.mode("iptables")
	n.until("status says why the backend stays", long, func() error {
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

// commented waits until the rules of Services have comments, or have none.
func (n *node) commented(want bool) {
	n.Helper()
	n.until(fmt.Sprintf("that rules have comments is %v", want), long, func() error {
		out, err := exec.Command("iptables-save", "-t", "nat").CombinedOutput()
		chain, comments := false, false
		for line := range strings.Lines(string(out)) {
			chain = chain || strings.HasPrefix(line, "-A KUBE-SEP-")
			comments = comments || strings.HasPrefix(line, "-A KUBE-SEP-") && strings.Contains(line, "--comment")
		}
		if err == nil && (!chain || comments != want) {
			err = fmt.Errorf("there are %s", out)
		}
		return err
	})
}
