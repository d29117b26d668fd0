// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"os"
	"slices"
	"testing"
	"time"
)

// The kernel with IPVS here has only the legacy backend.
var ourIPVS = kind{"ipvs", true, "ipvs", "legacy", false}

// TestKernelIPVSBeside compares some kinds of Services with kube-proxy's iptables mode, which defines what a Service
// means.
func TestKernelIPVSBeside(t *testing.T) {
	c := newIPVSContest(t)
	for _, p := range c.proxies {
		p.start(t)
	}
	t.Run("all kinds of Services", func(t *testing.T) {
		c := c.on(t)
		things := zoo()
		things = slices.DeleteFunc(things, func(t thing) bool { return !slices.Contains(tellingServices, t.service.Name) })
		c.write(things)
		c.compare(things)
	})
}

// tellingServices names the Services of the zoo that say most about IPVS: with two lists, with an empty one, and with
// clients that may not call.
var tellingServices = []string{"node-port-local", "load-balancer-local-far", "ranges"}

func newIPVSContest(t testing.TB) *contest {
	t.Helper()
	if _, err := os.Stat("/proc/sys/net/ipv4/vs"); err != nil {
		t.Skip("needs a kernel with IPVS: make test-ipvs brings one")
	}
	c := newContest(t, theirLegacy, ourIPVS)
	c.again = 10 * time.Second // for a kernel that is itself a process on a busy machine
	return c
}
