// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
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

// TestKernelThereAndBack swaps between two modes under load, several times.
func TestKernelThereAndBack(t *testing.T) {
	for _, p := range []pair{
		{"iptables", "userspace", ""},
		{"iptables", "nftables", "backend: nft"},
		{"iptables", "nftables", "backend: legacy"},
		{"userspace", "nftables", ""},
	} {
		t.Run(p.String(), func(t *testing.T) { thereAndBack(t, p) })
	}
}

func thereAndBack(t *testing.T, p pair) {
	n := newNode(t, p.from)
	n.options = p.options
	n.writeMode(p.from)
	n.start()
	l := n.newLoad()
	var took []time.Duration
	for range rounds() {
		took = append(took, n.swapTo(p.to), n.swapTo(p.from))
	}
	l.done("swaps of " + p.String())
	slices.Sort(took)
	t.Logf("%d swaps, until the other mode serves: median %s, longest %s (goal: 5s)", len(took), took[len(took)/2], took[len(took)-1])
	n.waitForMode(p.from)
	n.swapTo(p.to)
	n.waitForMode(p.to)
	n.expectNothingLeft(p.from)
	n.waitForEvent("it is no longer needed")
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

// nextHost kills the host, and starts the next one.
func (n *node) nextHost(mode string) {
	n.Helper()
	n.end(syscall.SIGKILL)
	n.start()
	n.until("the next host serves", n.serves(mode))
}

// TestKernelNewBinary replaces a plugin's binary under load, several times.
func TestKernelNewBinary(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			n := newNode(t, mode)
			n.needsLaunchedPlugins()
			n.start()
			for range rounds() {
				n.replaceBinary(mode)
			}
			n.nextHost(mode)
		})
	}
}

// replaceBinary replaces the binary of the mode, under load. The load ends first, since connections through the old
// process of a relay keep that process alive. On a machine that is too busy a swap is undone, because updates may be
// held back only for a limited time. The swap is asked for again, as an operator would do, and loses nothing either.
func (n *node) replaceBinary(mode string) {
	n.Helper()
	l := n.newLoad()
	before := n.plugin(mode)
	n.install()
	for tries := 1; !n.waitForReplacement(mode, before); tries++ {
		if tries == 3 {
			n.Fatal("it was undone each time")
		}
	}
	l.more(150)
	l.done("a new binary of " + mode)
	if m := n.waitForMode(mode); m.Last == nil || m.Last.Error != "" {
		n.Errorf("the swap ended with %+v", m.Last)
	}
}

// waitForReplacement waits until the new binary of a mode has replaced the process, and reports whether it serves. It
// does not if updates would have been held back for too long.
func (n *node) waitForReplacement(mode string, before int) (serves bool) {
	n.Helper()
	began := time.Now()
	if out, err := n.verb("plugin", "restart", mode); err != nil {
		n.Fatalf("%v: %s", err, out)
	}
	n.until("another process serves", func() error {
		err := n.servesWith(mode, before)()
		if err == nil {
			serves = true
			return nil
		}
		m, _ := n.Mode(n.Context())
		if m.Swap == nil && m.Last != nil && m.Last.At.After(began) && strings.Contains(m.Last.Error, "held back") {
			n.Logf("the swap was undone: %s", m.Last.Error)
			return nil
		}
		return err
	})
	return serves
}
