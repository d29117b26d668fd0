// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/eventually"
)

// run runs a runner until it is idle, and returns how the swap ended. Nothing of it is
// recorded then.
func run(t *testing.T, b *calls, begin func(*Runner)) Outcome {
	t.Helper()
	r := New(b, &fake{b, "iptables"})
	begin(r)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { // ends with ctx
		defer close(ended)
		r.Run(ctx)
	}()
	defer func() {
		cancel()
		<-ended
		if left := b.recorded(); left != Idle {
			t.Errorf("still recorded: %s", left)
		}
	}()
	for deadline := time.After(30 * time.Second); ; {
		select {
		case m := <-b.moved:
			if m.Stage == Idle {
				return m.Last
			}
		case <-deadline:
			t.Fatalf("it does not end:\n%s", b.text())
		}
	}
}

// TestRunnerUndoes has things fail, and looks that the right one goes.
func TestRunnerUndoes(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"open userspace", "fill userspace", "check", "verify userspace", "hold userspace", "userspace active", "iptables draining", "prove"} {
		t.Run(bad, func(t *testing.T) {
			t.Parallel()
			b := newCalls(bad)
			o := run(t, b, func(r *Runner) {
				if err := r.Ask(toUserspace); err != nil {
					t.Fatal(err)
				}
			})
			did := b.text()
			switch {
			case o.Err == "" || o.Plan.From != "iptables" || o.Plan.To != "userspace":
				t.Errorf("ended with %+v", o)
			case strings.Contains(did, "clear iptables"), strings.Contains(did, "stop iptables"):
				t.Errorf("took away what serves:\n%s", did)
			case strings.Contains(did, "freeze") != strings.Contains(did, "thaw"):
				t.Errorf("left the changes frozen:\n%s", did)
			case strings.Contains(did, "userspace active") && !strings.Contains(did, "fill iptables\niptables active\nuserspace draining"):
				t.Errorf("did not set the roles back, once what serves had been sent everything:\n%s", did)
			}
		})
	}
}

// TestRunnerEnds in the middle of holding, and lets go of what it held: which tells the
// tracker of a change would wait for ever.
func TestRunnerEnds(t *testing.T) {
	t.Parallel()
	b := newCalls("")
	b.when = "hold userspace"
	ctx, cancel := context.WithCancel(t.Context())
	b.then = cancel
	r := New(b, &fake{b, "iptables"})
	if err := r.Ask(toUserspace); err != nil {
		t.Fatal(err)
	}
	r.Run(ctx)
	if did := b.text(); !strings.Contains(did, "freeze") || !strings.Contains(did, "release userspace") || !strings.Contains(did, "thaw") {
		t.Errorf("ended, and let go of nothing:\n%s", did)
	}
}

// TestRunnerPutsUpWith what is wrong with the one that leaves: it may be why it does.
func TestRunnerPutsUpWith(t *testing.T) {
	t.Parallel()
	b := newCalls("hold iptables")
	o := run(t, b, func(r *Runner) {
		if err := r.Ask(toUserspace); err != nil {
			t.Fatal(err)
		}
	})
	if !o.OK() || !strings.Contains(b.text(), "hold failed") {
		t.Errorf("ended with %+v, after\n%s", o, b.text())
	}
}

// TestRunnerDrains for as long as something is left, or it is not known.
func TestRunnerDrains(t *testing.T) {
	t.Parallel()
	b := newCalls("")
	b.flows = []int{0, 2, 0, 0, -1, 0, 0, 1}
	o := run(t, b, func(r *Runner) {
		if err := r.Ask(toUserspace); err != nil {
			t.Fatal(err)
		}
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	if !o.OK() || len(b.flows) > 0 {
		t.Errorf("ended with %+v, and did not see %v", o, b.flows)
	}
}

// TestRunnerLoses a process in the middle of a swap. Only that of the one that comes
// undoes it.
func TestRunnerLoses(t *testing.T) {
	t.Parallel()
	for _, coming := range []bool{true, false} {
		b := newCalls("")
		b.when = "hold userspace"
		o := run(t, b, func(r *Runner) {
			b.then = func() {
				r.mu.Lock()
				lost := r.started
				if coming {
					lost = r.coming
				}
				r.mu.Unlock()
				r.Lost(lost, "killed")
				eventually.True(t, "the runner hears of it", func() bool { return !coming || r.Machine().Undo != "" })
			}
			if err := r.Ask(toUserspace); err != nil {
				t.Fatal(err)
			}
		})
		if want := map[bool]string{true: "killed"}[coming]; o.Err != want {
			t.Errorf("the one that comes lost %t: ended with %+v, want %q", coming, o, want)
		}
	}
}

// TestRunnerReverses when the one that drains is wanted again: then the other leaves.
func TestRunnerReverses(t *testing.T) {
	t.Parallel()
	b := newCalls("")
	b.flows = []int{1, 1, 1, 1, 1, 1, 1, 1} // until it is wanted
	b.when = "iptables draining"
	var first Outcome
	o := run(t, b, func(r *Runner) {
		retired := false
		b.then = func() { // the first time in Cutting
			if !retired {
				retired = true
				return
			}
			b.when, b.then = "open iptables", func() { first = r.Machine().Last }
			if err := r.Ask(toUserspace.back()); err != nil {
				t.Error(err)
			}
		}
		if err := r.Ask(toUserspace); err != nil {
			t.Fatal(err)
		}
	})
	did := b.text()
	if !o.OK() || o.Plan.To != "iptables" || !strings.Contains(did, "clear userspace\nstop userspace") || strings.Contains(did, "clear iptables") {
		t.Errorf("ended with %+v, after\n%s", o, did)
	}
	if !first.OK() || first.Plan.To != "userspace" {
		t.Errorf("the swap before ended with %+v", first)
	}
}
