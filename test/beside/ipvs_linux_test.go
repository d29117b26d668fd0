// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// Kube-proxy's iptables mode says what a Service means, its ipvs mode what becomes of
// that elsewhere. The kernel that has IPVS here has only the legacy backend.
var (
	theirIPVS = kind{"kube-proxy ipvs", false, "ipvs", "legacy", false}
	ourIPVS   = kind{"ipvs", true, "ipvs", "legacy", false}
)

// Some kinds of Service beside kube-proxy's iptables mode. In a long run each kind, and
// then two that change step by step, beside its ipvs mode too.
func TestKernelIPVSBeside(t *testing.T) {
	long := os.Getenv("POINTSMAN_SOAK") != ""
	kinds := []kind{theirLegacy, ourIPVS}
	if long {
		kinds = append(kinds, theirIPVS)
	}
	c := newIPVSContest(t, kinds...)
	for _, p := range c.proxies {
		p.start(t, detected)
	}
	t.Run("one of each", func(t *testing.T) {
		c := c.on(t)
		things := zoo()
		if !long {
			things = slices.DeleteFunc(things, func(t thing) bool { return !slices.Contains(telling, t.service.Name) })
		}
		c.write(things)
		c.compare(things)
	})
	if long {
		c.sequence(t)
	}
}

// telling are those of the zoo that tell most about IPVS: what has two lists, what
// has an empty one, and clients that may not call.
var telling = []string{"node-port-local", "load-balancer-local-far", "ranges"}

// Services at random, which change to others at random, under proxies set at random.
func TestKernelIPVSBesideAtRandom(t *testing.T) {
	if os.Getenv("POINTSMAN_SOAK") == "" {
		t.Skip("takes minutes each round: POINTSMAN_SOAK=N has N of them")
	}
	c := newIPVSContest(t, theirLegacy, ourIPVS)
	seed := seed()
	t.Logf("POINTSMAN_SEED=%d", seed)
	for round := range rounds() {
		d := newDice(seed + uint64(round))
		s := pick(d, manySettings...)
		t.Run(fmt.Sprint(seed+uint64(round), " ", s.label), func(t *testing.T) {
			c := c.on(t)
			for _, p := range c.proxies {
				p.stop()
				p.start(c.objects.root, s)
			}
			things := d.things(12)
			c.write(things)
			c.compare(things)
		})
	}
}

func newIPVSContest(t *testing.T, kinds ...kind) *contest {
	t.Helper()
	if _, err := os.Stat("/proc/sys/net/ipv4/vs"); err != nil {
		t.Skip("needs a kernel with IPVS: make test-ipvs brings one")
	}
	c := newContest(t, kinds...)
	c.again = 10 * time.Second // for a kernel that is a process itself, on a machine that does other things
	return c
}
