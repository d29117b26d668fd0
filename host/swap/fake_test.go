// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/pointsman/pointsman/sdk"
)

// A calls is what dataplanes and a host were asked, in order.
type calls struct {
	mu    sync.Mutex // guards what follows
	lines []string
	moved chan Machine
	bad   string // what fails, such as "prove"
	flows []int  // left at each look; -1: it is not known; then none
	when  string // something is noted,
	then  func() // this is done
	saved Stage
}

func (b *calls) note(line string) error {
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
func (b *calls) left() (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.flows) == 0 {
		return 0, nil
	}
	n, b.flows = b.flows[0], b.flows[1:]
	if n < 0 {
		return 0, errors.New("it is not known")
	}
	return n, nil
}

func (b *calls) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines, "\n")
}

// A fake is a Dataplane that does all that is asked of it.
type fake struct {
	*calls
	name string
}

func (f *fake) Filled(context.Context) error { return f.note("fill " + f.name) }

func (f *fake) Serving(context.Context) error {
	return f.note("await " + f.name)
}

func (f *fake) Hold(context.Context) error { return f.note("hold " + f.name) }

func (f *fake) Release() { _ = f.note("release " + f.name) }

func (f *fake) SetRole(_ context.Context, r sdk.Role) error {
	return f.note(f.name + " " + r.String())
}

func (f *fake) Verify(context.Context) (bool, error) { return true, f.note("verify " + f.name) }

func (f *fake) ReadyInStandby() bool { return true }

func (f *fake) ExportAffinity(context.Context) ([]sdk.AffinityEntry, error) {
	return make([]sdk.AffinityEntry, 1), nil
}

func (f *fake) ImportAffinity(_ context.Context, s []sdk.AffinityEntry) error {
	return f.note("seed " + f.name)
}

func (f *fake) TryActive(context.Context) error { return f.note("offer " + f.name) }

func (f *fake) Reinstate() { _ = f.note("reinstate " + f.name) }

func (f *fake) Progress() uint64 { return 1 }

func (f *fake) Flows(context.Context) (int, error) { return f.left() }

func (f *fake) Cleanup(context.Context) error { return f.note("clear " + f.name) }

func (f *fake) Stop() { _ = f.note("stop " + f.name) }

func (b *calls) Open(_ context.Context, p Plan) (Dataplane, error) {
	return &fake{b, p.To}, b.note("open " + p.To)
}

func (b *calls) Check(context.Context, Plan) error { return b.note("check") }

func (b *calls) Freeze() func() { _ = b.note("freeze"); return func() { _ = b.note("thaw") } }

func (b *calls) ProbeCanary(context.Context) []string { return []string{"way"} }

func (b *calls) Prove(_ context.Context, _ Dataplane, ways []string) error { return b.note("prove") }

func (b *calls) Serves(d Dataplane) { _ = b.note("serves " + d.(*fake).name) }

func (b *calls) Failed(a Action, err error) { _ = b.note(a.String() + " failed") }

func (b *calls) Moved(_, now Machine) {
	select {
	case b.moved <- now:
	default:
	}
}

func (b *calls) Record(m Machine) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.saved = m.Stage
	return nil
}

func (b *calls) Finished(d Dataplane, last Machine, o Outcome) {
	b.Serves(d)
	_ = b.Record(Machine{})
	b.Moved(last, Machine{Last: o})
}

// recorded is the stage that the next host would find.
func (b *calls) recorded() Stage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.saved
}

func newCalls(bad string) *calls { return &calls{bad: bad, moved: make(chan Machine, 64)} }
