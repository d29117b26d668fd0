// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"os"
	"slices"
	"testing"
	"time"
)

// The kernel that has IPVS here has only the legacy backend.
var ourIPVS = kind{"ipvs", true, "ipvs", "legacy", false}

// TestKernelIPVSBeside has some kinds of Service beside kube-proxy's iptables mode, which says what a Service means. In a
// long run it has each kind, and then two that change step by step.
func TestKernelIPVSBeside(t *testing.T) {
	c := newIPVSContest(t)
	for _, p := range c.proxies {
		p.start(t, detected)
	}
	t.Run("one of each", func(t *testing.T) {
		c := c.on(t)
		things := zoo()
		if !long() {
			things = slices.DeleteFunc(things, func(t thing) bool { return !slices.Contains(telling, t.service.Name) })
		}
		c.write(things)
		c.compare(things)
	})
	if long() {
		c.sequence(t)
	}
}

// telling are those of the zoo that tell most about IPVS: what has two lists, what
// has an empty one, and clients that may not call.
var telling = []string{"node-port-local", "load-balancer-local-far", "ranges"}

// TestKernelIPVSBesideAtRandom is TestKernelBesideAtRandom for mode ipvs.
func TestKernelIPVSBesideAtRandom(t *testing.T) { atRandom(t, newIPVSContest) }

func newIPVSContest(t testing.TB) *contest {
	t.Helper()
	if _, err := os.Stat("/proc/sys/net/ipv4/vs"); err != nil {
		t.Skip("needs a kernel with IPVS: make test-ipvs brings one")
	}
	c := newContest(t, theirLegacy, ourIPVS)
	c.again = 10 * time.Second // for a kernel that is a process itself, on a machine that does other things
	return c
}
