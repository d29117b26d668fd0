// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk/sdktest"
)

// The host is ended at every stage of a swap from ipvs to another mode or back, as an
// operator or systemd would: it is gone soon, whatever it was at, and the next one finishes
// the swap or undoes it and tries again. No connection fails in a mode that keeps rules. A
// soak has each stage in every direction, with both signals.
func TestKernelIPVSSignals(t *testing.T) {
	stages := []string{"preflight/launch", "staging/fill", "verifying/verify", "holding/freeze", "holding/hold", "cutting/promote", "cutting/retire", "proving/prove", "draining/drain", "clearing/clear"}
	others, signals := []string{"iptables", "userspace"}, []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}
	n := newNode(t)
	s, stage := n.shows("dual-stack")
	n.start()
	n.packets(s, stage)
	mode := "ipvs"
	for i, at := range stages {
		if os.Getenv("POINTSMAN_SOAK") == "" {
			mode = n.ends(s, stage, at, mode, others[i/2%2], signals[i/3%2])
			continue
		}
		for _, other := range others {
			for _, sig := range signals {
				for range 2 { // there and back
					mode = n.ends(s, stage, at, mode, other, sig)
				}
			}
		}
	}
}

// ends ends the host by a signal at a stage of a swap: from ipvs to the other mode, or from
// whichever serves back to ipvs. It is the mode that serves once the next host has gone on.
func (n *node) ends(s sdktest.Scenario, stage sdktest.Stage, at, from, other string, sig syscall.Signal) (to string) {
	n.Helper()
	if to = other; from != "ipvs" {
		to = "ipvs"
	}
	n.Logf("%s at %s, from %s to %s", sig, at, from, to)
	gate := filepath.Join(n.dir, "gate")
	n.write("gate", "")
	n.signalled(syscall.SIGTERM)
	n.launch("POINTSMAN_FAIL="+at+"=wait", "POINTSMAN_FAIL_GATE="+gate)
	n.serving()
	reached := func() int {
		log, err := os.ReadFile(filepath.Join(n.dir, "host.log"))
		if err != nil {
			n.Fatal(err)
		}
		return strings.Count(string(log), "failpoint reached: "+at)
	}
	before, began := reached(), time.Now()
	load := n.load(s, stage)
	if _, err := n.SwapMode(n.Context(), to, false); err != nil {
		n.Fatal(err)
	}
	n.until("the swap is at "+at, func() error {
		if reached() == before {
			return errors.New("not yet")
		}
		return nil
	})
	if err := errors.Join(n.cmd.Process.Signal(sig), os.Remove(gate)); err != nil {
		n.Fatal(err)
	}
	n.signalled(0)
	n.launch()
	n.finished(to, began)
	failed := load()
	// SIGINT ends a relay, and what goes through it.
	if relays := other == "userspace" && sig == syscall.SIGINT; len(failed) > 0 && !relays {
		n.Errorf("%s at %s, from %s to %s: %d calls failed, the first: %s", sig, at, from, to, len(failed), failed[0])
	}
	n.packets(s, stage)
	return to
}

// finished waits until the swap to a mode is over. One that was undone because the machine
// had no time for it is asked for again.
func (n *node) finished(to string, began time.Time) {
	n.Helper()
	var undone string
	n.until("the swap is over", func() error {
		m, err := n.Mode(n.Context())
		switch {
		case err != nil || m.Swap != nil:
			return fmt.Errorf("swap %+v, %v", m.Swap, err)
		case m.Mode == to:
			undone = ""
			return nil
		case m.Last == nil || m.Last.Error == "" || m.Last.At.Before(began) || strings.Contains(m.Last.Error, "the host ended"):
			// Undone as the host ended, it is tried again by the next one.
			return fmt.Errorf("mode %s, last %+v", m.Mode, m.Last)
		}
		undone = m.Last.Error
		return nil
	})
	if undone != "" {
		if !n.isBusy(undone, began) {
			n.Fatalf("to %s: %s", to, undone)
		}
		n.Logf("to %s: %s; once more", to, undone)
		n.change(to)
		n.until(to+" alone serves", func() error { return n.mode(to, true) })
	}
	n.serving()
}

// signalled sends the host a signal, unless that is zero, and waits until it is gone.
func (n *node) signalled(sig syscall.Signal) {
	n.Helper()
	if sig != 0 {
		if err := n.cmd.Process.Signal(sig); err != nil {
			n.Fatal(err)
		}
	}
	select {
	case <-n.exited: // 3 s on an idle machine; one that waits for itself never ends
	case <-time.After(time.Minute):
		n.Fatalf("the host did not end within a minute of a signal")
	}
}
