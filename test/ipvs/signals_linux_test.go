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

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// An ending is a host's end by a signal, at a stage of a swap.
type ending struct {
	at  string
	sig syscall.Signal
}

// A journey is a swap to a mode, in the middle of which hosts are ended: each next one goes on
// with it, or undoes it and begins it again, and so comes to the next stage.
type journey struct {
	to   string
	ends []ending
}

// journeys have a host ended at each stage once. A soak has each stage in every direction,
// to both modes, with both signals.
func journeys() (all []journey) {
	const term, interrupt = syscall.SIGTERM, syscall.SIGINT
	if os.Getenv("POINTSMAN_SOAK") == "" {
		return []journey{
			{"iptables", []ending{{"preflight/launch", term}, {"verifying/verify", interrupt}, {"cutting/retire", term}, {"draining/drain", interrupt}}},
			{"ipvs", []ending{{"staging/fill", interrupt}, {"holding/freeze", term}, {"cutting/promote", interrupt}}},
			{"userspace", []ending{{"holding/hold", term}, {"proving/prove", term}, {"clearing/clear", term}}},
		}
	}
	for _, at := range []string{"preflight/launch", "staging/fill", "verifying/verify", "holding/freeze", "holding/hold", "cutting/promote", "cutting/retire", "proving/prove", "draining/drain", "clearing/clear"} {
		for _, other := range []string{"iptables", "userspace"} {
			for _, sig := range []syscall.Signal{term, interrupt} {
				all = append(all, journey{other, []ending{{at, sig}}}, journey{"ipvs", []ending{{at, sig}}})
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
	all := journeys()
	n.launchToWait(all[0].ends[0].at)
	n.serving()
	n.packets(s, stage)
	from := "ipvs"
	for i, j := range all {
		next := all[min(i+1, len(all)-1)]
		n.travels(s, stage, from, j, next.ends[0].at)
		from = j.to
	}
}

// travels swaps from one mode to another, and ends hosts on the way. The first was launched to
// wait where it is to be ended; the last will wait at another point, in the next swap.
func (n *node) travels(s sdktest.Scenario, stage sdktest.Stage, from string, j journey, next string) {
	n.Helper()
	load, began, relays := n.load(s, stage), time.Now(), false
	asked := began
	before := n.closes(j.ends[0].at)
	if _, err := n.SwapMode(n.Context(), admin.SwapAsk{To: j.to}); err != nil {
		n.Fatal(err)
	}
	for i, e := range j.ends {
		n.Logf("%s at %s, from %s to %s", e.sig, e.at, from, j.to)
		n.until("the swap is at "+e.at, func() error {
			if n.reached(e.at) == before {
				asked = n.again(j.to, asked)
				return errors.New("not yet")
			}
			return nil
		})
		if err := errors.Join(n.cmd.Process.Signal(e.sig), os.Remove(n.gate())); err != nil {
			n.Fatal(err)
		}
		n.ended()
		// SIGINT ends a relay, and what goes through it.
		relays = relays || e.sig == syscall.SIGINT && (from == "userspace" || j.to == "userspace")
		at := next
		if i+1 < len(j.ends) {
			at = j.ends[i+1].at
			before = n.closes(at)
		}
		n.launchToWait(at)
	}
	n.finished(j.to, began)
	if failed := load(); len(failed) > 0 && !relays {
		n.Errorf("from %s to %s, %v: %d calls failed, the first: %s", from, j.to, j.ends, len(failed), failed[0])
	}
	n.packets(s, stage)
}

// again asks once more for a swap that was undone since it was asked for, because the machine
// had no time for it, and returns when it was asked for last. One that was undone as the host
// ended is tried again by the next host.
func (n *node) again(to string, asked time.Time) time.Time {
	n.Helper()
	m, err := n.Mode(n.Context())
	undone := err == nil && m.Swap == nil && m.Mode != to && m.Last != nil && m.Last.Error != "" && m.Last.At.After(asked)
	if !undone || strings.Contains(m.Last.Error, "the host ended") {
		return asked
	}
	if !n.isBusy(m.Last.Error, asked) {
		n.Fatalf("to %s: %s", to, m.Last.Error)
	}
	n.Logf("to %s: %s; once more", to, m.Last.Error)
	asked = time.Now()
	if _, err := n.SwapMode(n.Context(), admin.SwapAsk{To: to}); err != nil {
		n.Fatal(err)
	}
	return asked
}

// launchToWait launches a host that waits at a point of a swap for as long as there is a
// gate, and passes it while there is none.
func (n *node) launchToWait(at string) {
	n.Helper()
	n.launch("POINTSMAN_FAIL="+at+"=wait", "POINTSMAN_FAIL_GATE="+n.gate())
}

func (n *node) gate() string { return filepath.Join(n.dir, "gate") }

// closes puts the gate there, and returns how often hosts have come to the point before.
func (n *node) closes(at string) int {
	n.Helper()
	before := n.reached(at)
	n.write("gate", "")
	return before
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
	case <-time.After(timeout):
		n.Fatalf("the host did not end within %s of a signal", timeout)
	}
}
