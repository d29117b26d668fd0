// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A book is what dataplanes and a yard were asked, in order.
type book struct {
	mu    sync.Mutex // guards what follows
	lines []string
	moved chan Machine
	bad   string // what fails, such as "prove"
	late  bool   // in Standby nothing is laid yet
}

func (b *book) note(line string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line)
	if line == b.bad {
		return errors.New("no luck")
	}
	return nil
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
func (t *train) Hold(context.Context) error   { return t.note("hold " + t.name) }
func (t *train) Release()                     { _ = t.note("release " + t.name) }
func (t *train) SetRole(_ context.Context, r sdk.Role) error {
	return t.note(t.name + " " + r.String())
}
func (t *train) Verify(context.Context) (bool, error)        { return true, t.note("verify " + t.name) }
func (t *train) Laid() bool                                  { return !t.late }
func (t *train) Stuck(context.Context) ([]sdk.Stick, error)  { return make([]sdk.Stick, 1), nil }
func (t *train) Seed(_ context.Context, s []sdk.Stick) error { return t.note("seed " + t.name) }
func (t *train) Progress() uint64                            { return 1 }
func (t *train) Flows(context.Context) (int, error)          { return 0, nil }
func (t *train) Cleanup(context.Context) error               { return t.note("clear " + t.name) }
func (t *train) Stop()                                       { _ = t.note("stop " + t.name) }
func (b *book) Open(_ context.Context, p Plan) (Dataplane, error) {
	return &train{b, p.To}, b.note("open " + p.To)
}
func (b *book) Check(context.Context, Plan) error            { return b.note("check") }
func (b *book) Freeze() func()                               { _ = b.note("freeze"); return func() { _ = b.note("thaw") } }
func (b *book) Sound(context.Context) []string               { return []string{"way"} }
func (b *book) Prove(_ context.Context, ways []string) error { return b.note("prove") }
func (b *book) Serves(d Dataplane)                           {}
func (b *book) Failed(a Action, err error)                   { _ = b.note(a.String() + " failed") }
func (b *book) Moved(_, now Machine) {
	select {
	case b.moved <- now:
	default:
	}
}

// run runs a runner until it rests, and returns how the swap ended.
func run(t *testing.T, b *book, begin func(*Runner)) Outcome {
	t.Helper()
	r := New(b, filepath.Join(t.TempDir(), "swap.json"), &train{b, "iptables"})
	begin(r)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { // ends with ctx
		defer close(ended)
		r.Run(ctx)
	}()
	defer func() { cancel(); <-ended }()
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
	for name, late := range map[string]bool{"laid in Standby": false, "laid when it is active": true} {
		t.Run(name, func(t *testing.T) { runnerSwaps(t, late) })
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
		"prove", "iptables draining", "clear iptables", "stop iptables",
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
	for _, bad := range []string{"open userspace", "fill userspace", "check", "verify userspace", "hold userspace", "userspace active", "iptables draining", "prove"} {
		t.Run(bad, func(t *testing.T) {
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
			case strings.Contains(did, "userspace active") && !strings.Contains(did, "iptables active"):
				t.Errorf("did not set the roles back:\n%s", did)
			}
		})
	}
}

// TestRunnerResumes finds a swap that was under way.
func TestRunnerResumes(t *testing.T) {
	for stage, want := range map[Stage]string{Proving: "iptables active", Draining: "clear iptables", Staging: "clear userspace"} {
		b := newBook("")
		o := run(t, b, func(r *Runner) {
			m := Machine{Stage: stage, Plan: toUserspace}
			keeps, leaves := m.Parties()
			r.Resume(m, &train{b, keeps.Mode}, &train{b, leaves.Mode})
		})
		if !strings.Contains(b.text(), want) || o.OK() != (stage == Draining) {
			t.Errorf("%s: ended with %+v, without %q:\n%s", stage, o, want, b.text())
		}
	}
}
