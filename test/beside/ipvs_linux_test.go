// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"os"
	"testing"
	"time"
)

// The kernel with IPVS here has only the legacy backend.
var ourIPVS = kind{"ipvs", true, "ipvs", "legacy", false}

// TestKernelIPVSBeside compares Services of every kind, and then Services that change step by step, with kube-proxy's
// iptables mode, which defines what a Service means.
func TestKernelIPVSBeside(t *testing.T) {
	if _, err := os.Stat("/proc/sys/net/ipv4/vs"); err != nil {
		t.Skip("needs a kernel with IPVS: make test-ipvs brings one")
	}
	c := newContest(t, theirLegacy, ourIPVS)
	c.again = 10 * time.Second // for a kernel that is itself a process on a busy machine
	for _, p := range c.proxies {
		p.start(t)
	}
	t.Run("all kinds of Services", func(t *testing.T) {
		c := c.on(t)
		things := zoo()
		c.write(things)
		c.compare(things)
	})
	c.sequence(t)
}
