// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

const dropping = "add table inet fw; add chain inet fw f { type filter hook forward priority 5; policy drop; }"

// TestKernelAuto starts with the mode that suits the node's chains, and keeps it across reboots even if the chains
// change. A mode that is configured or asked for takes precedence.
func TestKernelAuto(t *testing.T) {
	n := newNode(t, "auto")
	n.needsLaunchedPlugins()
	n.addSettings("dataDir: data\n")
	n.writeMode("auto")
	n.nft(dropping)
	n.start()
	n.expectAuto("iptables", "chain f of table inet fw drops what is forwarded")
	n.reboot()
	n.nft("delete table inet fw")
	n.start()
	n.expectAuto("iptables", "chain f of table inet fw drops what is forwarded")
	n.reboot()
	if err := os.Remove(n.path("data/auto.json")); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.expectAuto("nftables", "this node supports it")
	n.writeMode("iptables")
	n.waitForMode("iptables")
	n.swapTo("userspace")
	n.waitForMode("userspace")
	n.writeMode("auto")
	n.waitForMode("nftables")
	n.swapTo("userspace")
	if m := n.waitForMode("userspace"); m.Asked != "userspace" || m.File != "auto" || !strings.Contains(m.Auto, "auto is nftables") {
		t.Errorf("mode show: %+v", m)
	}
	if out, err := n.verb("mode", "reset"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if m := n.waitForMode("nftables"); m.Asked != "" {
		t.Errorf("mode show: %+v", m)
	}
}

// expectAuto checks which mode auto chooses, and the reason in the status.
func (n *node) expectAuto(mode, why string) {
	n.Helper()
	s, err := n.Status(n.Context())
	if err != nil || s.Mode != mode || !strings.Contains(s.Auto, "auto is "+mode) || !strings.Contains(s.Auto, why) {
		n.Fatalf("mode %s: %q, %v; want %s: %q", s.Mode, s.Auto, err, mode, why)
	}
}

// reboot ends the host and its plugins, and removes what does not survive a reboot.
func (n *node) reboot() {
	n.Helper()
	n.end(syscall.SIGINT)
	if out, err := n.verb("cleanup"); err != nil {
		n.Fatalf("%v: %s", err, out)
	}
	if err := os.RemoveAll(n.path("state")); err != nil {
		n.Fatal(err)
	}
}
