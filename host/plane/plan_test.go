// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// TestRandomFaults fails steps, ends processes, kills hosts and changes the Want at random, and checks the invariants
// of the package. Then the faults stop, and at the end only the desired mode must serve.
func TestRandomFaults(t *testing.T) {
	lives := 5000
	if testing.Short() {
		lives = 300
	}
	for seed := range lives {
		w := newWorld()
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		chaos(w, r)
		served := w.kernelServes()
		if problem := w.settle(served); problem != "" || slices.ContainsFunc(w.trace, func(l string) bool { return strings.HasPrefix(l, "BROKEN") }) {
			t.Fatalf("seed %d: %s\n%+v\n%s", seed, problem, w.state, strings.Join(w.trace, "\n"))
		}
	}
}

var modes = []string{"iptables", "nftables", "ipvs", "userspace", "apart", "apart-relay"}

func chaos(w *world, r *rand.Rand) {
	w.want.Mode = modes[r.IntN(len(modes))]
	faults := []int{0, 5, 20}[r.IntN(3)]
	w.fail = func(s Step, mode, build string) error {
		if r.IntN(100) < faults {
			return errFault
		}
		return nil
	}
	was := false
	for range 50 + r.IntN(150) {
		wake := w.plan()
		switch n := r.IntN(100); {
		case n < 50 && len(w.doing) > 0:
			w.end(r.IntN(len(w.doing)))
		case n < 70:
			_ = w.syncNext() || w.drainNext()
		case n < 75 && len(w.state.Have) > 0 && faults > 0:
			if i := &w.state.Have[r.IntN(len(w.state.Have))]; i.Up {
				w.lose(i)
			}
		case n < 77 && faults > 0:
			w.restart(func() bool { return r.IntN(2) == 0 })
		case n < 80:
			w.want.Number++
			w.want.Mode, w.want.Build = modes[r.IntN(len(modes))], fmt.Sprint(r.IntN(2))
			w.note("  wanted: %s/%s", w.want.Mode, w.want.Build)
		case n < 90:
			w.now = w.now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
		case !wake.IsZero():
			w.now = wake
		}
		is := w.kernelServes()
		if was && !is && !w.relayDied {
			w.note("BROKEN: nothing serves any more")
		}
		began := slices.ContainsFunc(w.doing, func(d doing) bool { return d.relayServed })
		w.relayDied = w.relayDied && (!is || began)
		was = is
		w.checkFacts()
	}
	w.fail = nil
}

// kernelServes reports whether a mode serves packets.
func (w *world) kernelServes() bool {
	for _, role := range w.kernel {
		if role == sdk.Active {
			return true
		}
	}
	return false
}

// checkFacts checks invariant 5.
func (w *world) checkFacts() {
	for mode := range w.kernel {
		if mode != w.state.Facts.Served && !slices.Contains(w.state.Facts.Left, mode) {
			w.note("BROKEN: %s has rules, and the facts do not say so", mode)
		}
	}
}

// settle runs without faults, and describes what is wrong at the end.
func (w *world) settle(served bool) string {
	for len(w.doing) > 0 {
		w.end(0)
	}
	w.plan()
	w.want.Number++ // a failed proof is retried
	w.note("  the faults stop")
	w.run(nil)
	switch {
	case w.state.Facts.Served != w.want.Mode || w.kernel[w.want.Mode] != sdk.Active:
		return w.want.Mode + " does not serve"
	case len(w.kernel) != 1 || len(w.state.Facts.Left) > 0:
		return fmt.Sprintf("there is something left: %v", w.kernel)
	case len(w.state.Have) != 1 || w.state.Have[0].Build != w.want.Build:
		return fmt.Sprintf("there are other processes: %+v", w.state.Have)
	}
	return ""
}

// TestLoss checks how long an instance waits after its process has ended, and the number of failures.
func TestLoss(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		loss     Loss
		failures int
		pause    time.Duration
		after    int // failures
	}{
		"crashed at the start":                   {Loss{}, 0, firstBackoff, 1},
		"crashed again":                          {Loss{Served: time.Second}, 3, 8 * firstBackoff, 4},
		"the pause is shortened by the jitter":   {Loss{Jitter: 0.5}, 3, 4 * firstBackoff, 4},
		"crashed for the 1000th":                 {Loss{}, 999, lastBackoff, 1000},
		"crashed after a long life":              {Loss{Served: longLife}, 5, 0, 1},
		"nothing listens":                        {Loss{Dialed: true}, 5, dialInterval, 6},
		"cannot run here":                        {Loss{Reason: Unable}, 2, refusedRetry, 3},
		"another host has taken the plugin over": {Loss{Reason: Fenced, Served: time.Second}, 2, fencedRetry, 3},
		"the host ended it on purpose":           {Loss{Reason: Asked, Served: time.Second}, 2, 0, 2},
	} {
		s := State{Have: []Instance{{ID: 1, Up: true, Synced: true, Role: sdk.Active, Served: true, Failures: c.failures}}}
		s.Lost(1, c.loss, now)
		i := s.Have[0]
		if i.Next != now.Add(c.pause) || i.Failures != c.after || i.Up || i.Synced || i.Role != 0 || !i.Served {
			t.Errorf("%s: waits %s with %d failures, want %s and %d; %+v", name, i.Next.Sub(now), i.Failures, c.pause, c.after, i)
		}
	}
}

// TestLostProcess: rules serve without their process, unless they lead to it.
func TestLostProcess(t *testing.T) {
	for _, dies := range []bool{false, true} {
		s := State{Have: []Instance{{ID: 1, Up: true, Served: true, DiesWithProcess: dies}}}
		s.Lost(1, Loss{}, time.Now())
		if i, _ := s.Instance(1); i.Up || i.Served == dies {
			t.Errorf("it dies with its process: %t; after that it is %+v", dies, i)
		}
	}
}
