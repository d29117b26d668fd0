// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A book is what dataplanes and a host were asked, in order.
type book struct {
	mu    sync.Mutex // guards what follows
	lines []string
	moved chan Machine
	bad   string // what fails, such as "prove"
	late  bool   // in Standby nothing is laid yet
	flows []int  // left at each look; -1: nobody can say; then none
	when  string // something is noted,
	then  func() // this is done
}

func (b *book) note(line string) error {
	b.mu.Lock()
	b.lines = append(b.lines, line)
	b.mu.Unlock()
	if line == b.when {
		b.then()
	}
	if line == b.bad {
		return errors.New("no luck")
	}
	return nil
}

// left is the next of flows.
func (b *book) left() (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.flows) == 0 {
		return 0, nil
	}
	n, b.flows = b.flows[0], b.flows[1:]
	if n < 0 {
		return 0, errors.New("nobody can say")
	}
	return n, nil
}

func (b *book) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines, "\n")
}

// A train is a Dataplane that does all it is asked.
type train struct {
	*book
	name string
}

func (t *train) Filled(context.Context) error { return t.note("fill " + t.name) }
func (t *train) Serving(context.Context) error {
	return t.note("await " + t.name)
}
func (t *train) Hold(context.Context) error { return t.note("hold " + t.name) }
func (t *train) Release()                   { _ = t.note("release " + t.name) }
func (t *train) SetRole(_ context.Context, r sdk.Role) error {
	return t.note(t.name + " " + r.String())
}
func (t *train) Verify(context.Context) (bool, error) { return true, t.note("verify " + t.name) }
func (t *train) ReadyInStandby() bool                 { return !t.late }
func (t *train) ExportAffinity(context.Context) ([]sdk.AffinityEntry, error) {
	return make([]sdk.AffinityEntry, 1), nil
}
func (t *train) ImportAffinity(_ context.Context, s []sdk.AffinityEntry) error {
	return t.note("seed " + t.name)
}
func (t *train) Progress() uint64                   { return 1 }
func (t *train) Flows(context.Context) (int, error) { return t.left() }
func (t *train) Cleanup(context.Context) error      { return t.note("clear " + t.name) }
func (t *train) Stop()                              { _ = t.note("stop " + t.name) }
func (b *book) Open(_ context.Context, p Plan) (Dataplane, error) {
	return &train{b, p.To}, b.note("open " + p.To)
}
func (b *book) Check(context.Context, Plan) error                         { return b.note("check") }
func (b *book) Freeze() func()                                            { _ = b.note("freeze"); return func() { _ = b.note("thaw") } }
func (b *book) ProbeCanary(context.Context) []string                      { return []string{"way"} }
func (b *book) Prove(_ context.Context, _ Dataplane, ways []string) error { return b.note("prove") }
func (b *book) Serves(d Dataplane)                                        { _ = b.note("serves " + d.(*train).name) }
func (b *book) Failed(a Action, err error)                                { _ = b.note(a.String() + " failed") }
func (b *book) Moved(_, now Machine) {
	select {
	case b.moved <- now:
	default:
	}
}

// run runs a runner until it rests, and returns how the swap ended. Nothing of it is on
// the disk then.
func run(t *testing.T, b *book, begin func(*Runner)) Outcome {
	t.Helper()
	dir := t.TempDir()
	r := New(b, filepath.Join(dir, "swap.json"), &train{b, "iptables"})
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
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left on the disk: %v, %v", left, err)
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

func newBook(bad string) *book { return &book{bad: bad, moved: make(chan Machine, 64)} }

func TestRunnerSwaps(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"laid in Standby": false, "laid when it is active": true} {
		t.Run(name, func(t *testing.T) { t.Parallel(); runnerSwaps(t, late) })
	}
}

func runnerSwaps(t *testing.T, late bool) {
	b := newBook("")
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
			b := newBook(bad)
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
				t.Errorf("did not set the roles back, once what serves had been told everything:\n%s", did)
			}
		})
	}
}

// TestRunnerEnds in the middle of holding, and lets go of what it held: who tells the
// tracker of a change would wait for ever.
func TestRunnerEnds(t *testing.T) {
	t.Parallel()
	b := newBook("")
	b.when = "hold userspace"
	ctx, cancel := context.WithCancel(t.Context())
	b.then = cancel
	r := New(b, filepath.Join(t.TempDir(), "swap.json"), &train{b, "iptables"})
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
		b := newBook(bad)
		o := run(t, b, func(r *Runner) {
			if err := r.Retire(Plan{From: "ipvs", To: "iptables", Leftover: true, Drain: time.Minute}, &train{b, "ipvs"}); err != nil {
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
		b := newBook("")
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

// TestRunnerPutsUpWith what is wrong with the one that leaves: it may be why it does.
func TestRunnerPutsUpWith(t *testing.T) {
	t.Parallel()
	b := newBook("hold iptables")
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
	b := newBook("prove")
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

// TestRunnerDrains for as long as something is left, or nobody can say.
func TestRunnerDrains(t *testing.T) {
	t.Parallel()
	b := newBook("")
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
		b := newBook("")
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
				for deadline := time.Now().Add(10 * time.Second); coming && r.Machine().Undo == "" && time.Now().Before(deadline); {
					time.Sleep(lull)
				}
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

// TestRunnerTurnsBack when the one that drains is wanted again: then the other leaves.
func TestRunnerTurnsBack(t *testing.T) {
	t.Parallel()
	b := newBook("")
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
	b := newBook("")
	file := filepath.Join(t.TempDir(), "swap.json")
	r := New(b, file, &train{b, "iptables"})
	r.Resume(Machine{Stage: Draining, Plan: toUserspace}, &train{b, "userspace"}, &train{b, "iptables"})
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
	for deadline := time.Now().Add(30 * time.Second); r.Ask(toUserspace.back()) != nil; time.Sleep(lull) {
		if time.Now().After(deadline) {
			t.Fatalf("nobody can ask any more:\n%s", b.text())
		}
	}
}

// TestRunnerIsAskedWhileItHasMuchToDo says so, and is not taken for asked.
func TestRunnerIsAskedWhileItHasMuchToDo(t *testing.T) {
	t.Parallel()
	b := newBook("")
	r := New(b, filepath.Join(t.TempDir(), "swap.json"), &train{b, "iptables"})
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
		b := newBook("")
		o := run(t, b, func(r *Runner) {
			keeps, leaves := m.Parties()
			r.Resume(m, &train{b, keeps.Mode}, &train{b, leaves.Mode})
		})
		if !strings.Contains(b.text(), want) || o.OK() != (want == "clear iptables") {
			t.Errorf("%s: ended with %+v, without %q:\n%s", m.Stage, o, want, b.text())
		}
	}
}
