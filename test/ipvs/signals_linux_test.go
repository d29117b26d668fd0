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

// An ending is a host's end by a signal, at a stage of a swap from ipvs to the other mode or
// back.
type ending struct {
	at, other string
	sig       syscall.Signal
}

// endings are one for each stage, of both directions, modes and signals in turn. A soak has
// each stage in every direction, to both modes, with both signals.
func endings() (all []ending) {
	stages := []string{"preflight/launch", "staging/fill", "verifying/verify", "holding/freeze", "holding/hold", "cutting/promote", "cutting/retire", "proving/prove", "draining/drain", "clearing/clear"}
	others, signals := []string{"iptables", "userspace"}, []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}
	for i, at := range stages {
		if os.Getenv("POINTSMAN_SOAK") == "" {
			all = append(all, ending{at, others[i/2%2], signals[i/3%2]})
			continue
		}
		for _, other := range others {
			for _, sig := range signals {
				all = append(all, ending{at, other, sig}, ending{at, other, sig}) // there and back
			}
		}
	}
	return all
}

// The host is ended at every stage of a swap from ipvs to another mode or back, as an
// operator or systemd would: it is gone soon, whatever it was at, and the next one finishes
// the swap or undoes it and tries again. No connection fails in a mode that keeps rules.
func TestKernelIPVSSignals(t *testing.T) {
	n := newNode(t)
	s, stage := n.shows("dual-stack")
	all, mode := endings(), "ipvs"
	n.launchToWait(all[0].at)
	n.serving()
	n.packets(s, stage)
	for i, e := range all {
		next := all[min(i+1, len(all)-1)]
		mode = n.ends(s, stage, e, mode, next.at)
	}
}

// launchToWait launches a host that waits at a point of a swap for as long as there is a
// gate. It passes that point while there is none, so the host that finishes one swap is the
// one that is ended in the next.
func (n *node) launchToWait(at string) {
	n.Helper()
	n.launch("POINTSMAN_FAIL="+at+"=wait", "POINTSMAN_FAIL_GATE="+n.gate())
}

func (n *node) gate() string { return filepath.Join(n.dir, "gate") }

// ends ends the host, which was launched to wait where e is, by a signal there: from ipvs to
// the other mode, or from whichever serves back to ipvs. The next host is launched to wait at
// another point. It returns the mode that serves once that one has gone on.
func (n *node) ends(s sdktest.Scenario, stage sdktest.Stage, e ending, from, next string) (to string) {
	n.Helper()
	if to = e.other; from != "ipvs" {
		to = "ipvs"
	}
	n.Logf("%s at %s, from %s to %s", e.sig, e.at, from, to)
	n.write("gate", "")
	before, began := n.reached(e.at), time.Now()
	load := n.load(s, stage)
	if _, err := n.SwapMode(n.Context(), to, false); err != nil {
		n.Fatal(err)
	}
	n.until("the swap is at "+e.at, func() error {
		if n.reached(e.at) == before {
			return errors.New("not yet")
		}
		return nil
	})
	if err := errors.Join(n.cmd.Process.Signal(e.sig), os.Remove(n.gate())); err != nil {
		n.Fatal(err)
	}
	n.ended()
	n.launchToWait(next)
	n.finished(to, began)
	failed := load()
	// SIGINT ends a relay, and what goes through it.
	if relays := e.other == "userspace" && e.sig == syscall.SIGINT; len(failed) > 0 && !relays {
		n.Errorf("%s at %s, from %s to %s: %d calls failed, the first: %s", e.sig, e.at, from, to, len(failed), failed[0])
	}
	n.packets(s, stage)
	return to
}

// reached is how often hosts have come to a point at which they wait.
func (n *node) reached(at string) int {
	n.Helper()
	log, err := os.ReadFile(filepath.Join(n.dir, "host.log"))
	if err != nil {
		n.Fatal(err)
	}
	return strings.Count(string(log), "failpoint reached: "+at)
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

// ended waits until the host is gone, which was sent a signal.
func (n *node) ended() {
	n.Helper()
	select {
	case <-n.exited: // 3 s on an idle machine; one that waits for itself never ends
	case <-time.After(time.Minute):
		n.Fatalf("the host did not end within a minute of a signal")
	}
}
