// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/traffic"
)

// rounds returns how often each pair is swapped there and back: more often in a soak.
func rounds() int {
	if n, err := strconv.Atoi(os.Getenv("POINTSMAN_SOAK")); err == nil {
		return n
	}
	return 5
}

// pair is a pair of modes, with the options of those that run the programs of iptables.
type pair struct{ from, to, options string }

func (p pair) String() string { return strings.TrimSpace(p.from + "-" + p.to + " " + p.options) }

// TestKernelThereAndBack swaps between two modes under load, several times: of a host that launches its plugins, and of one
// beside which they run as units.
func TestKernelThereAndBack(t *testing.T) {
	for _, c := range []struct {
		begin func(*testing.T, string) *node
		pair
	}{
		{newNode, pair{"iptables", "userspace", ""}},
		{newNode, pair{"iptables", "nftables", "backend: nft"}},
		{newNode, pair{"iptables", "nftables", "backend: legacy"}},
		{newNode, pair{"userspace", "nftables", ""}},
		{newApart, pair{"userspace", "iptables", "backend: nft"}},
	} {
		t.Run(c.String(), func(t *testing.T) { thereAndBack(c.begin(t, c.from), c.pair) })
	}
}

func thereAndBack(n *node, p pair) {
	t := n.T
	n.options = p.options
	n.write("services/six.yaml", service("six", "fd00:30::a", ", ipFamilies: [IPv6]", 8081, "fd00:180::1"))
	n.writeMode(p.from)
	n.start()
	n.waitForAnswers()
	callers := n.callers()
	if six, ok := n.ipv6Caller(); ok {
		callers = append(callers, six)
	}
	l := n.loadOf(callers...)
	var took []time.Duration
	thereAndBack := func() { took = append(took, n.swapTo(p.to), n.swapTo(p.from)) }
	for range rounds() - 1 {
		thereAndBack()
	}
	n.inAStorm(thereAndBack)
	l.done("swaps of " + p.String())
	slices.Sort(took)
	t.Logf("%d swaps, until the other mode serves: median %s, longest %s (goal: 5s)", len(took), took[len(took)/2], took[len(took)-1])
	n.waitForMode(p.from)
	var idle []*kept
	for _, c := range n.callers() {
		idle = append(idle, n.keep(c))
	}
	n.swapTo(p.to)
	if p.from != "userspace" {
		n.waitForMode(p.to) // the kernel keeps translated connections; those through a relay end with it
	}
	for _, k := range idle {
		if err := k.say(); err != nil {
			t.Errorf("idle while the mode went to %s: %s: %v", p.to, k.name, err)
		}
		_ = k.Close()
	}
	n.waitForMode(p.to)
	n.expectNothingLeft(p.from)
	n.waitForEvent("it is no longer needed")
}

// inAStorm changes endpoints all the time while f runs.
func (n *node) inAStorm(f func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond): // the pace of the changes
				n.write("services/storm.yaml", storm(i))
			}
		}
	}()
	f()
	close(stop)
	<-stopped
}

// ipv6Caller returns a client that calls by IPv6, and waits until it is answered. Some machines have no IPv6.
func (n *node) ipv6Caller() (c caller, ok bool) {
	n.Helper()
	for _, addr := range []string{"fd00:192::10", "fd00:30::a"} {
		if err := n.testbed.Own(netip.MustParseAddr(addr)); err != nil {
			n.Logf("no IPv6 here: %v", err)
			return c, false
		}
	}
	traffic.Answer(n, n.testbed, netip.MustParseAddrPort("[fd00:180::1]:8081"))
	c = n.caller("client", netip.MustParseAddr("fd00:198::7"), netip.MustParseAddrPort("[fd00:30::a]:8081"))
	n.until("IPv6 is served", func() error { return c.Try(n.Context()) })
	return c, true
}

// TestKernelFileChangedMeanwhile changes the mode in the file while no host runs. The next host starts with the mode
// that serves, although no swap was ever made, and swaps.
func TestKernelFileChangedMeanwhile(t *testing.T) {
	n := newApart(t, "iptables")
	n.start()
	l := n.newLoad()
	n.until("iptables is known to serve", func() error {
		_, err := os.Stat(n.path("state/mode.json"))
		return err
	})
	n.end(syscall.SIGKILL)
	n.writeMode("userspace")
	n.start()
	n.until("userspace serves", n.serves("userspace"))
	l.done("a mode that changed while no host ran")
	n.waitForMode("userspace")
	n.expectNothingLeft("iptables")
}

// TestKernelNewBinary replaces a plugin's binary under load, several times.
func TestKernelNewBinary(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			n := newNode(t, mode)
			n.needsLaunchedPlugins()
			n.start()
			for range rounds() {
				l := n.newLoad()
				n.install()
				before := n.plugin(mode)
				if out, err := n.verb("plugin", "restart", mode); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				n.until("another process serves", n.servesWith(mode, before))
				l.more(150)
				l.done("a new binary of " + mode) // its connections keep the old process of a relay alive
				if m := n.waitForMode(mode); m.Last == nil || m.Last.Error != "" {
					t.Errorf("the swap ended with %+v", m.Last)
				}
			}
			n.end(syscall.SIGKILL)
			n.start()
			n.until("the next host serves", n.serves(mode))
		})
	}
}
