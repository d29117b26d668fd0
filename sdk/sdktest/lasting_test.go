// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// A kernel outlives the process of a Recorder, so that the lines of the contract about restarts
// can be checked.
type kernel struct {
	mu      sync.Mutex // guards the fields up to foreign
	served  map[sdk.Name]sdk.Service
	node    sdk.Node
	role    sdk.Role
	latest  *lasting
	foreign string

	lock   sync.Mutex // guards writer; no other mutex is locked while it is held
	writer *lasting   // holds the writer's lock; nil if no process does
}

// A lasting dataplane keeps its rules in a kernel, needs the writer's lock, and repairs drift in
// each Inspect. Each bool field selects a mistake.
type lasting struct {
	*Recorder
	kernel *kernel

	flushes   bool // removes all rules at start
	unlocked  bool // writes without the writer's lock
	neglects  bool // does not repair drift
	sweeps    bool // changes foreign objects in Cleanup
	forgetful bool // does not adopt the rules at start
	hasty     bool // removes all rules if its role is set before its first update
}

// lasts returns a Subject whose lives share a kernel.
func lasts(breaks func(*lasting)) Subject {
	k := &kernel{served: map[sdk.Name]sdk.Service{}, foreign: "chain FOREIGN"}
	return Subject{
		Start:   func(context.Context, string) (sdk.Dataplane, error) { return k.start(breaks), nil },
		Stop:    func(dp sdk.Dataplane) { k.stop(dp.(*lasting)) },
		Disturb: func(context.Context) error { return k.disturb() },
		Foreign: func(context.Context) (string, error) { return k.foreign, nil },
		Testbed: Said(func(sdk.Dataplane) Sender { k.mu.Lock(); defer k.mu.Unlock(); return k.latest }),
	}
}

func (k *kernel) start(breaks func(*lasting)) *lasting {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := &lasting{Recorder: &Recorder{Describe: sdk.Description{Name: "lasting", Version: "1", Limits: []sdk.Limit{}}}, kernel: k}
	breaks(l)
	if l.flushes {
		clear(k.served)
	}
	l.served, l.node, l.Recorder.role = k.served, k.node, k.role
	if l.forgetful {
		l.served = map[sdk.Name]sdk.Service{}
	}
	if k.latest == nil || k.free() {
		k.latest = l
	}
	l.Writer = func() bool { return l.unlocked || l.locks() }
	return l
}

func (k *kernel) free() bool {
	k.lock.Lock()
	defer k.lock.Unlock()
	return k.writer == nil
}

func (k *kernel) stop(l *lasting) {
	k.lock.Lock()
	defer k.lock.Unlock()
	if k.writer == l {
		k.writer = nil
	}
}

func (k *kernel) disturb() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.latest.mu.Lock()
	defer k.latest.mu.Unlock()
	clear(k.served)
	return nil
}

// locks takes the lock if it is free.
func (l *lasting) locks() bool {
	l.kernel.lock.Lock()
	defer l.kernel.lock.Unlock()
	if l.kernel.writer == nil {
		l.kernel.writer = l
	}
	return l.kernel.writer == l
}

func (l *lasting) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	r, err := l.Recorder.Sync(ctx, u)
	node := l.Node()
	l.kernel.mu.Lock()
	defer l.kernel.mu.Unlock()
	l.kernel.node = node
	return r, err
}

func (l *lasting) SetRole(ctx context.Context, r sdk.Role) error {
	l.kernel.mu.Lock()
	l.kernel.role, l.kernel.latest = r, l
	if l.hasty && l.state.Revision() == 0 {
		clear(l.kernel.served)
	}
	l.kernel.mu.Unlock()
	if r == sdk.Yielded {
		defer l.kernel.stop(l)
	}
	return l.Recorder.SetRole(ctx, r)
}

func (l *lasting) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	l.mu.Lock()
	if l.state.Revision() > 0 && l.Recorder.role == sdk.Active && !l.neglects {
		for name, s := range l.state.Services {
			if s.Check() == nil {
				l.served[name] = s
			}
		}
	}
	l.mu.Unlock()
	return l.Recorder.Inspect(ctx, tell)
}

func (l *lasting) Cleanup(ctx context.Context, lo sdk.Leftovers) ([]string, error) {
	names, err := l.Recorder.Cleanup(ctx, sdk.Leftovers{DryRun: true})
	if lo.DryRun {
		return names, err
	}
	l.kernel.mu.Lock()
	defer l.kernel.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.served)
	clear(l.kernel.served)
	l.state, l.session, l.kernel.role = sdk.State{}, false, 0
	if l.sweeps {
		l.kernel.foreign += ", without its rules"
	}
	return names, err
}

// TestLastingConforms: a lasting dataplane conforms without limits.
func TestLastingConforms(t *testing.T) {
	t.Parallel()
	Conform(t, lasts(func(*lasting) {}))
}

// TestSuiteDetectsMistakesInKernel is like TestSuiteDetectsMistakes, for the lines of the contract
// about rules that outlive a process.
func TestSuiteDetectsMistakesInKernel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		breaks func(*lasting)
		check  string
	}{
		{"flushes at start", func(l *lasting) { l.flushes = true }, "C06/restart"},
		{"does not adopt rules at start", func(l *lasting) { l.forgetful = true }, "C06/restart"},
		{"removes rules when its role is set before its first update", func(l *lasting) { l.hasty = true }, "C06/restart"},
		{"changes foreign objects", func(l *lasting) { l.sweeps = true }, "C06/foreign-stays"},
		{"writes without the lock", func(l *lasting) { l.unlocked = true }, "C08/second-takes-over-from-yielded"},
		{"does not repair drift", func(l *lasting) { l.neglects = true }, "C12/drift-is-repaired"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := find(t, lasts(c.breaks), c.check)
			if f.Status != Fail {
				t.Errorf("%s did not detect the mistake: %s", c.check, f)
			}
			t.Log(f)
		})
	}
	t.Run("declares dies-with-process, but its rules last", func(t *testing.T) {
		t.Parallel()
		s := lasts(func(l *lasting) { l.Describe.Limits = []sdk.Limit{sdk.LimitDiesWithProcess} })
		if f := find(t, s, "C06/restart"); f.Status != Fail {
			t.Errorf("C06/restart did not detect the mistake: %s", f)
		}
	})
	t.Run("dies with its process, and does not declare that", func(t *testing.T) {
		t.Parallel()
		s := bare(func(r *Recorder) sdk.Dataplane { r.Describe.Limits = []sdk.Limit{}; return r })
		if f := find(t, s, "C06/restart"); f.Status != Fail {
			t.Errorf("C06/restart did not detect the mistake: %s", f)
		}
	})
}

// TestUnreleasedLock: a life in this process that keeps the writer's lock prevents the next one from
// serving, and the check reports that.
func TestUnreleasedLock(t *testing.T) {
	s := lasts(func(*lasting) {})
	s.Stop = nil // the mistake
	if f := find(t, s, "C03/full-twice"); f.Status != Pass {
		t.Fatalf("the first run: %s", f)
	}
	f := find(t, s, "C03/full-twice")
	if f.Status != Fail || !strings.Contains(f.Reason, "holds the writer's lock") {
		t.Errorf("the second run: %s; want a failure by the writer's lock", f)
	}
}
