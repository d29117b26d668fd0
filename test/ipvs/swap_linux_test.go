// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// rounds returns how often a pair is swapped there and back: once with -short.
func rounds() int {
	if testing.Short() {
		return 1
	}
	return 2
}

// TestKernelIPVSSwaps swaps from ipvs to another mode and back: no caller is rejected, and no connection ends.
func TestKernelIPVSSwaps(t *testing.T) {
	for _, other := range []string{"iptables", "userspace"} {
		t.Run(other, func(t *testing.T) { newNode(t).thereAndBack(other) })
	}
}

// TestKernelNftablesSwaps does the same with nftables, if the kernel has both.
func TestKernelNftablesSwaps(t *testing.T) {
	const chain = "add table ip t; add chain ip t c { type nat hook prerouting priority -100; }"
	switch out, err := exec.Command("nft", "-c", chain).CombinedOutput(); {
	case err == nil:
	case os.Getenv("UML_MODULES") != "":
		t.Fatalf("the guest has no NAT of nf_tables: %v: %s", err, out)
	default:
		t.Skipf("needs a kernel with NAT of nf_tables: make test-nftables-ipvs brings one: %v: %s", err, out)
	}
	newNode(t).thereAndBack("nftables")
}

// thereAndBack swaps from ipvs to another mode and back, and checks what is left of each.
func (n *node) thereAndBack(other string) {
	s, stage := n.showScenario("dual-stack")
	n.start()
	n.expectPackets(s, stage)
	for range rounds() {
		n.swap(s, stage, "ipvs", other)
		n.expectNothingLeft("ipvsadm -Sn; ipset list -n; ip -o link show kube-ipvs0 2>/dev/null")
		n.swap(s, stage, other, "ipvs")
		n.expectNothingLeft("nft list tables 2>/dev/null | grep 'pointsman$'")
	}
}

// expectNothingLeft checks that a command prints nothing of the old mode.
func (n *node) expectNothingLeft(command string) {
	n.Helper()
	if left, _ := exec.Command("sh", "-c", command).CombinedOutput(); len(left) > 0 {
		n.Errorf("%s still lists objects of the former mode: %s", command, left)
	}
}

// swap changes the mode under load, and returns when the old mode has been removed.
func (n *node) swap(s sdktest.Scenario, stage sdktest.Stage, from, to string) {
	n.Helper()
	kept := n.connect(s, stage)
	load := n.load(s, stage)
	n.change(to)
	n.expectKept(kept)
	for flow := range kept {
		flow.Close()
	}
	n.until(from+" has gone", func() error { return n.mode(to, true) })
	if failed := load(); len(failed) > 0 {
		n.Errorf("from %s to %s: %d calls failed, the first: %s", from, to, len(failed), failed[0])
	}
	n.expectPackets(s, stage)
}

// busy lists the reasons for which a swap fails if the machine is too busy.
var busy = []string{
	"did not get on for", "took longer than", "timeout while waiting", "no handshake within", "deadline exceeded",
	"after its deadline", "gets on no more", // so the host killed it
	`refused "COMMIT"`, // another program changed the table since it was read
}

// isBusy reports whether a swap was undone because the machine was too busy. A plugin that the host has killed may not
// have logged a reason.
func (n *node) isBusy(why string, since time.Time) bool {
	n.Helper()
	says := func(why string) bool {
		return slices.ContainsFunc(busy, func(sign string) bool { return strings.Contains(why, sign) })
	}
	if says(why) || !strings.Contains(why, "was ended by signal 9") {
		return says(why)
	}
	events, err := n.Events(n.Context())
	if err != nil {
		n.Fatal(err)
	}
	return slices.ContainsFunc(events.Items, func(e admin.Event) bool { return e.Time.After(since) && says(e.Message) })
}

// change swaps. If the machine is too busy for the limits of the stages the swap is undone, and change asks again.
func (n *node) change(to string) {
	n.Helper()
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		began := time.Now()
		undone := n.ask(to)
		if undone == "" {
			return
		}
		if !n.isBusy(undone, began) {
			n.Fatalf("to %s: %s", to, undone)
		}
		n.Logf("to %s: %s; once more", to, undone)
	}
	n.Fatalf("%s never served", to)
}

// ask asks for a swap, waits until it has succeeded or was undone, and returns why it was undone.
func (n *node) ask(to string) (undone string) {
	n.Helper()
	before, err := n.Mode(n.Context())
	if err != nil {
		n.Fatal(err)
	}
	if _, err := n.SwapMode(n.Context(), admin.SwapAsk{To: to}); err != nil {
		n.Fatal(err)
	}
	n.until(to+" serves, or the change is undone", func() error {
		m, err := n.Mode(n.Context())
		if err == nil && m.Swap != nil && m.Swap.Undo != "" && m.Swap.Stage == "draining" && m.Swap.Flows > 0 {
			undone = m.Swap.Undo // the old mode continues to drain
			return nil
		}
		newer := m.Last != nil && (before.Last == nil || m.Last.At.After(before.Last.At))
		if err == nil && m.Swap == nil && newer && m.Last.Error != "" {
			undone = m.Last.Error
			return nil
		}
		return errors.Join(err, n.mode(to, false))
	})
	return undone
}

// mode returns an error unless the mode is want and, with over, the swap has ended.
func (n *node) mode(want string, over bool) error {
	m, err := n.Mode(n.Context())
	switch {
	case err != nil:
		return err
	case m.Mode != want || over && m.Swap != nil:
		return fmt.Errorf("mode %s, swap %+v, last %+v", m.Mode, m.Swap, m.Last)
	}
	return nil
}

// connect opens a flow for each packet of a scenario, and returns which endpoints answer.
func (n *node) connect(s sdktest.Scenario, stage sdktest.Stage) map[sdktest.Flow]sdktest.Answer {
	n.Helper()
	kept := make(map[sdktest.Flow]sdktest.Answer)
	for _, p := range s.Packets {
		flow, err := stage.Dial(n.Context(), p)
		if err != nil {
			n.Fatal(err)
		}
		a, err := flow.Ask(n.Context())
		if err != nil || a.Verdict != sdk.Forward {
			n.Fatalf("%s: %s, %v", p.Text, a, err)
		}
		kept[flow] = a
	}
	return kept
}

// between is the pause between two calls of a load. Without pauses the callers leave a guest no time for the swap.
const between = 200 * time.Millisecond

// load calls by every packet of a scenario again and again, until end is called, which returns the failures.
func (n *node) load(s sdktest.Scenario, stage sdktest.Stage) (end func() []string) {
	ctx, cancel := context.WithCancel(n.Context())
	var mu sync.Mutex // guards failed
	var failed []string
	var calls sync.WaitGroup
	for _, p := range s.Packets {
		calls.Go(func() { // ends with ctx
			pace := time.NewTicker(between)
			defer pace.Stop()
			for ; ctx.Err() == nil; <-pace.C {
				a, err := stage.Send(context.WithoutCancel(ctx), p)
				if err != nil || a.Verdict != sdk.Forward {
					mu.Lock()
					failed = append(failed, fmt.Sprintf("%s: %s, %v", p.Text, a, err))
					mu.Unlock()
				}
			}
		})
	}
	return func() []string {
		cancel()
		calls.Wait()
		return failed
	}
}
