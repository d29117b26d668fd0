// SPDX-License-Identifier: Apache-2.0

package masquerade

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// A kernel gives access to the IPv4 nat table of the test's network namespace by one backend.
type kernel struct {
	*testing.T
	tool   iptables.Tool
	dir    string
	shared *ledger.Ledger
}

// onKernel runs f for each backend that this machine has, with an empty table and ledger.
func onKernel(t *testing.T, f func(kernel)) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it writes to a kernel's tables, in a namespace of its own")
	}
	for _, backend := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		t.Run(string(backend), func(t *testing.T) {
			tool, err := iptables.Open(t.Context(), sdk.IPv4, backend)
			if err != nil {
				t.Skip("needs the backend: ", err)
			}
			k := kernel{T: t, tool: tool, dir: t.TempDir()}
			k.open()
			k.restore("")
			t.Cleanup(func() { k.restore("") })
			f(k)
		})
	}
}

func (k *kernel) open() {
	k.Helper()
	var err error
	if k.shared, err = ledger.Open(k.dir); err != nil {
		k.Fatal(err)
	}
}

// restore replaces the content of nat.
func (k kernel) restore(text string) {
	k.Helper()
	c := exec.Command("iptables-"+string(k.tool.Backend)+"-restore", "-w")
	c.Stdin = strings.NewReader("*nat\n" + text + "COMMIT\n")
	if out, err := c.CombinedOutput(); err != nil {
		k.Fatalf("%v: %s", err, out)
	}
}

func (k kernel) run(words string) {
	k.Helper()
	if out, err := exec.Command("sh", "-c", "iptables-"+string(k.tool.Backend)+" -w -t nat "+words).CombinedOutput(); err != nil {
		k.Fatalf("%s: %v: %s", words, err, out)
	}
}

func (k kernel) nat() iptables.Tables {
	k.Helper()
	t, err := k.tool.Save(context.Background(), "nat")
	if err != nil {
		k.Fatal(err)
	}
	return t
}

// lacks returns the steps that would complete the object in tables.
func lacks(t iptables.Tables, bit uint8) []string { return marking.missing(t, bit).Steps() }

// checkPresent checks that the object exists, with exactly one jump to it and the given mark bit.
func (k kernel) checkPresent(when string, bit uint8) {
	k.Helper()
	t := k.nat()
	if missing := lacks(t, bit); len(missing) > 0 {
		k.Errorf("%s: the object lacks %q", when, missing)
	}
	if n := len(marking.ownJumps(t)); n != 1 {
		k.Errorf("%s: %d jumps to the object, want 1", when, n)
	}
}

// checkRemoved checks that nothing of the object is left.
func (k kernel) checkRemoved(when string) {
	k.Helper()
	t := k.nat()
	for id := range t {
		if marking.has(id) {
			k.Errorf("%s: %s is still there", when, id)
		}
	}
	if n := len(marking.ownJumps(t)); n > 0 {
		k.Errorf("%s: %d jumps to the object are left", when, n)
	}
}

func (k kernel) hold(holder string) *Hold {
	return &Hold{Ledger: k.shared, Holder: holder, Tool: k.tool}
}

func (k kernel) ensure(h *Hold, bit uint8) []string {
	k.Helper()
	steps, err := h.Ensure(k.Context(), bit)
	if err != nil {
		k.Fatal(err)
	}
	return steps
}

// TestKernelRace: if several dataplanes hold and leave the object concurrently, it stays complete as long as there is a
// holder.
func TestKernelRace(t *testing.T) {
	onKernel(t, func(k kernel) {
		k.ensure(k.hold("stays"), 14)
		var all sync.WaitGroup
		for _, holder := range []string{"a", "b", "c"} {
			all.Go(func() {
				for range 5 {
					if _, err := k.hold(holder).Ensure(k.Context(), 14); err != nil {
						k.Error(err)
					}
					k.checkPresent("in a race", 14)
					if _, err := Leave(k.Context(), k.dir, holder, []iptables.Tool{k.tool}, sdk.Leftovers{}, marking.has); err != nil {
						k.Error(err)
					}
				}
			})
		}
		all.Wait()
		k.checkPresent("after a race", 14)
	})
}

// TestKernelDrift: what another program removes is restored by the first holder that checks. If two holders got
// different bits, the bit sent last applies to both.
func TestKernelDrift(t *testing.T) {
	onKernel(t, func(k kernel) {
		one, two := k.hold("iptables"), k.hold("userspace")
		k.ensure(one, 14)
		k.ensure(two, 14)
		for _, harm := range []string{
			"-F", "-F && iptables-" + string(k.tool.Backend) + " -w -t nat -X", "-F " + Mark, "-D KUBE-POSTROUTING 1", "-D POSTROUTING 1",
			"-R KUBE-POSTROUTING 1 -p tcp -j RETURN", "-A " + Mark + " -j ACCEPT",
		} {
			k.run(harm)
			if len(lacks(k.nat(), 14)) == 0 {
				k.Errorf("after %s the object counts as complete", harm)
			}
			one.Doubt()
			two.Doubt()
			if steps, err := one.Mend(k.Context()); err != nil || len(steps) == 0 {
				k.Errorf("after %s the first holder did %q, %v", harm, steps, err)
			}
			k.checkPresent("after "+harm, 14)
			if steps, err := two.Mend(k.Context()); err != nil || len(steps) > 0 {
				k.Errorf("after %s the second holder did %q, %v", harm, steps, err)
			}
		}
		k.ensure(two, 15)
		k.checkPresent("after another bit", 15)
		one.Doubt()
		if steps, err := one.Mend(k.Context()); err != nil || len(steps) > 0 || len(lacks(k.nat(), 15)) > 0 {
			k.Errorf("the holder that got the earlier bit did %q, %v", steps, err)
		}
		k.ensure(one, 15)
		k.checkPresent("after both got the bit", 15)
	})
}

// TestKernelLocked: while another process has the object's lock, no other process writes the object, and one that waits
// stops when its context ends.
func TestKernelLocked(t *testing.T) {
	onKernel(t, func(k kernel) {
		share, err := k.shared.Share(k.Context(), Mark)
		if err != nil {
			k.Fatal(err)
		}
		ctx, cancel := context.WithCancel(k.Context())
		cancel()
		if _, err := k.hold("iptables").Ensure(ctx, 14); !errors.Is(err, context.Canceled) {
			k.Errorf("Ensure returned %v", err)
		}
		k.checkRemoved("locked")
		if err := share.Close(); err != nil {
			k.Fatal(err)
		}
		k.ensure(k.hold("iptables"), 14)
		k.checkPresent("after the lock was released", 14)
	})
}

// If nat has a rule that iptables cannot print, there is still exactly one jump, whichever process ensures it, and none
// after the last holder has left.
func TestKernelEnsuresBesideARuleThatOnlyNFTPrints(t *testing.T) {
	onKernel(t, func(k kernel) {
		if k.tool.Backend != iptables.NFT {
			return // legacy iptables cannot have such rules
		}
		k.run("-N THEIRS") // creates the table
		native := func(command string) string {
			out, err := exec.Command("nft", strings.Fields(command)...).CombinedOutput()
			if err != nil {
				k.Fatalf("%s: %v: %s", command, err, out)
			}
			return string(out)
		}
		native(`add chain ip nat POSTROUTING { type nat hook postrouting priority srcnat ; }`)
		native(`add rule ip nat POSTROUTING oifname { "wan0", "wan1" } masquerade`)
		defer native(`flush chain ip nat POSTROUTING`)
		for range 3 {
			k.ensure(k.hold("nftables"), 14)
			if n := strings.Count(native(`list chain ip nat POSTROUTING`), "jump KUBE-POSTROUTING"); n != 1 {
				k.Errorf("%d jumps", n)
			}
		}
		if _, err := Leave(k.Context(), k.dir, "nftables", []iptables.Tool{k.tool}, sdk.Leftovers{}, func(iptables.ID) bool { return false }); err != nil {
			k.Fatal(err)
		}
		left := native(`list table ip nat`)
		if strings.Contains(left, "KUBE-") || !strings.Contains(left, `oifname { "wan0", "wan1" } masquerade`) {
			k.Errorf("Leave left %s", left)
		}
	})
}
