// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"os"
	"os/exec"
	"testing"
)

// TestKernelNoNetwork swaps on a node that has only its loopback: no address leads to a canary there, and none is
// required. The namespace and its contents end with the host.
func TestKernelNoNetwork(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes a network namespace and writes rules")
	}
	dir, err := os.MkdirTemp("", "swap")
	if err != nil {
		t.Fatal(err)
	}
	n := newClient(t, dir)
	t.Cleanup(n.close)
	n.install()
	n.write("services/web.yaml", manifest)
	n.writeMode("userspace")
	n.run(exec.Command("unshare", "--net", "sh", "-c", `ip link set lo up && exec "$0" "$@"`, n.path("pointsman"), "run", "--config", n.path("host.yaml")))
	for _, mode := range []string{"iptables", "nftables", "userspace", "nftables", "iptables"} {
		n.swapTo(mode)
		if m := n.waitForMode(mode); m.Last == nil || m.Last.Error != "" {
			t.Errorf("the swap to %s ended with %+v", mode, m.Last)
		}
	}
	n.waitForEvent("without proof")
}
