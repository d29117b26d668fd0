// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

func TestRunnerSwaps(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"laid in Standby": false, "laid when it is active": true} {
		t.Run(name, func(t *testing.T) { t.Parallel(); runnerSwaps(t, late) })
	}
}

func runnerSwaps(t *testing.T, late bool) {
	b := newCalls("")
	b.late = late
	o := run(t, b, func(r *Runner) {
		if err := r.Ask(toUserspace); err != nil {
			t.Fatal(err)
		}
		if err := r.Ask(toUserspace); !errors.Is(err, ErrBusy) {
			t.Errorf("asked twice: %v", err)
		}
	})
	if !o.OK() {
		t.Errorf("ended with %+v", o)
	}
	want := []string{
		"open userspace", "fill userspace", "check", "verify userspace",
		"freeze", "hold userspace", "hold iptables", "seed userspace",
		"userspace active", "iptables draining", "release userspace", "release iptables", "thaw",
		"prove", "serves userspace", "await userspace", "iptables draining", "await userspace", "clear iptables", "stop iptables",
	}
	if late { // what was seen in Standby says nothing of now
		want = slices.Insert(want, slices.Index(want, "prove")+1, "verify userspace")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := b.lines[:min(len(want), len(b.lines))]; !slices.Equal(got, want) {
		t.Errorf("did\n%s\nwant\n%s", strings.Join(b.lines, "\n"), strings.Join(want, "\n"))
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

// TestRunnerRetires what an earlier swap left, beside the one that serves.
func TestRunnerRetires(t *testing.T) {
	t.Parallel()
	for bad, want := range map[string]string{
		"":      "prove\nserves iptables\nawait iptables\nipvs draining\nawait iptables\nclear ipvs\nstop ipvs\nstop ipvs\nserves iptables",
		"prove": "prove\nstop ipvs\nserves iptables",
	} {
		b := newCalls(bad)
		o := run(t, b, func(r *Runner) {
			if err := r.Retire(Plan{From: "ipvs", To: "iptables", Leftover: true, Drain: time.Minute}, &fake{b, "ipvs"}); err != nil {
				t.Fatal(err)
			}
		})
		if remains := map[string]string{"prove": "ipvs"}[bad]; b.text() != want || o.Remains != remains || o.Stays != "iptables" {
			t.Errorf("%q fails: ended with %+v, after\n%s", bad, o, b.text())
		}
	}
}

// TestRunnerSameMode has a new binary take over, and looks at what it made of it.
func TestRunnerSameMode(t *testing.T) {
	t.Parallel()
	for overlap, want := range map[bool]string{
		false: "iptables yielded\nm active\nrelease",
		true:  "m active\niptables yielded\nm active\n",
	} {
		b := newCalls("")
		o := run(t, b, func(r *Runner) {
			if err := r.Ask(Plan{From: "m", To: "m", Same: true, Overlap: overlap, Drain: time.Minute}); err != nil {
				t.Fatal(err)
			}
		})
		did := b.text()
		if !o.OK() || !strings.Contains(did, want) || !strings.Contains(did, "prove\nverify m\n") || strings.Contains(did, "clear") {
			t.Errorf("overlap %t: ended with %+v, after\n%s", overlap, o, did)
		}
	}
}

// TestRunnerSameModeUndone: that the former process stays is said by more than its mode.
func TestRunnerSameModeUndone(t *testing.T) {
	t.Parallel()
	o := run(t, newCalls("prove"), func(r *Runner) {
		if err := r.Ask(Plan{From: "m", To: "m", Same: true, Drain: time.Minute}); err != nil {
			t.Fatal(err)
		}
	})
	if o.Err == "" || o.Stays != "m" || !o.Undone {
		t.Errorf("ended with %+v", o)
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

// TestRunnerStays with the one that comes, if so asked, and ends the other's process all
// the same.
func TestRunnerStays(t *testing.T) {
	t.Parallel()
	b := newCalls("prove")
	p := toUserspace
	p.Stay = true
	o := run(t, b, func(r *Runner) {
		if err := r.Ask(p); err != nil {
			t.Fatal(err)
		}
	})
	did := b.text()
	if !o.OK() || o.Left == "" || !strings.Contains(did, "stop iptables\nserves userspace") || strings.Contains(did, "iptables active") {
		t.Errorf("ended with %+v, after\n%s", o, did)
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

// TestRunnerIsAskedTooLate for the one that drains: by the time it hears of it, that one is
// being cleared away. It swaps when it is asked again, all the same.
func TestRunnerIsAskedTooLate(t *testing.T) {
	t.Parallel()
	b := newCalls("")
	r := New(b, &fake{b, "iptables"})
	r.Resume(Machine{Stage: Draining, Plan: toUserspace}, &fake{b, "userspace"}, &fake{b, "iptables"})
	if err := r.Ask(toUserspace.back()); err != nil {
		t.Fatal(err)
	}
	asked := <-r.events
	r.machine.Stage = Clearing // as if the drain had ended just then
	r.events <- asked
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { // ends with ctx
		defer close(ended)
		r.Run(ctx)
	}()
	defer func() { cancel(); <-ended }()
	eventually.Succeeds(t, "the runner takes it, when it is asked again", func() error {
		err := r.Ask(toUserspace.back())
		if err != nil {
			err = fmt.Errorf("%w, after\n%s", err, b.text())
		}
		return err
	})
}

// TestRunnerIsAskedWhileItHasMuchToDo says so, and is not taken for asked.
func TestRunnerIsAskedWhileItHasMuchToDo(t *testing.T) {
	t.Parallel()
	b := newCalls("")
	r := New(b, &fake{b, "iptables"})
	for range cap(r.events) {
		r.Reset("someone is impatient")
	}
	if err := r.Ask(toUserspace); !errors.Is(err, ErrBusy) {
		t.Errorf("asked of a runner that cannot hear: %v", err)
	}
	<-r.events
	if err := r.Ask(toUserspace); err != nil {
		t.Errorf("asked of one that can: %v", err)
	}
	if err := r.Ask(toUserspace.back()); !errors.Is(err, ErrBusy) || !strings.HasSuffix(err.Error(), ": iptables → userspace, about to begin") {
		t.Errorf("asked again before it began: %v", err)
	}
}

// TestRunnerResumes finds a swap that was under way.
func TestRunnerResumes(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]Machine{
		"iptables active": {Stage: Proving, Plan: toUserspace},
		"clear iptables":  {Stage: Draining, Plan: toUserspace},
		"clear userspace": {Stage: Staging, Plan: toUserspace},
		"userspace draining\nawait iptables\nclear userspace": {Stage: Draining, Plan: toUserspace.back(), Back: true, Undo: "no luck"},
	} {
		b := newCalls("")
		o := run(t, b, func(r *Runner) {
			keeps, leaves := m.Parties()
			r.Resume(m, &fake{b, keeps.Mode}, &fake{b, leaves.Mode})
		})
		if !strings.Contains(b.text(), want) || o.OK() != (want == "clear iptables") {
			t.Errorf("%s: ended with %+v, without %q:\n%s", m.Stage, o, want, b.text())
		}
	}
}
