// SPDX-License-Identifier: Apache-2.0

package writer_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/writer"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
	"github.com/pointsman/pointsman/test/eventually"
)

// A planner is a dataplane of which only the lock matters.
type planner struct {
	*testing.T
	semaphore sync.Mutex // held by a call, or a try
	shared    *ledger.Ledger
	claim     *writer.Claim
	lock      *ledger.Lock
	wrote     int     // how often it did
	fails     []error // of the next writes
	names     []sdk.Failure
}

func newPlanner(t *testing.T, shared *ledger.Ledger) *planner {
	p := &planner{T: t, shared: shared}
	p.claim = writer.NewClaim("some", writer.Planner{Enter: p.enter, Lock: p.take, Write: p.write, Log: func() *slog.Logger { return slog.New(slog.DiscardHandler) }})
	t.Cleanup(func() {
		p.claim.Close()
		if p.lock != nil {
			_ = p.lock.Unlock()
		}
	})
	return p
}

func (p *planner) enter(ctx context.Context) (context.Context, func(), error) {
	p.semaphore.Lock()
	return ctx, p.semaphore.Unlock, nil
}

func (p *planner) take() (err error) {
	if p.lock == nil {
		p.lock, err = p.claim.Lock(p.shared)
	}
	return err
}

func (p *planner) write(context.Context) error {
	p.wrote++
	if len(p.fails) > 0 {
		err := p.fails[0]
		p.fails = p.fails[1:]
		return err
	}
	p.claim.Wrote(p.names)
	return nil
}

// within does something as a call does.
func (p *planner) within(f func()) {
	p.Helper()
	p.semaphore.Lock()
	defer p.semaphore.Unlock()
	f()
}

func (p *planner) report() (r sdk.Report) {
	p.claim.Tell(&r)
	return r
}

// plan tells it of a revision while another process is the writer.
func (p *planner) plan(revision uint64) {
	p.Helper()
	p.within(func() {
		if err := p.take(); err != nil || p.lock != nil {
			p.Fatalf("beside a writer it has %v, %v", p.lock, err)
		}
		p.claim.Took(sdk.Update{To: revision, Full: true}, sdk.Result{Planned: true})
	})
}

func (p *planner) until(what string, ok func(sdk.Report) bool) {
	p.Helper()
	eventually.True(p, "it "+what, func() bool { return ok(p.report()) })
}

// open is the ledger in dir.
func open(t *testing.T, dir string) *ledger.Ledger {
	t.Helper()
	shared, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return shared
}

func held(t *testing.T, shared *ledger.Ledger) *ledger.Lock {
	t.Helper()
	lock, err := shared.TryLock("some")
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// What was planned is written when the lock is free, again where that fails, and what
// fails of it is told until an update names it.
func TestAClaimIsMadeGood(t *testing.T) {
	shared := open(t, t.TempDir())
	first, p := held(t, shared), newPlanner(t, shared)
	p.plan(7)
	if r := p.report(); r.Lock != sdk.LockAwaited || r.Holder.PID != os.Getpid() || r.Served != 0 {
		t.Errorf("beside a writer it reports %+v", r)
	}
	web := sdk.Name{Service: "web"}
	p.within(func() {
		p.fails, p.names = []error{errors.New("no room")}, []sdk.Failure{{Name: web, Err: errors.New("no such module")}}
	})
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	p.until("serves what it planned", func(r sdk.Report) bool { return r.Served == 7 })
	p.within(func() {
		if p.wrote != 2 || p.lock == nil || p.claim.Owes() {
			t.Errorf("it wrote %d times, and has %v", p.wrote, p.lock)
		}
	})
	if r := p.report(); r.Lock != sdk.LockHeld || r.Holder != (sdk.Holder{}) || len(r.Unserved) != 1 || r.Unserved[0].Name != web {
		t.Errorf("then it reports %+v", r)
	}
	p.within(func() { p.claim.Took(sdk.Update{From: 7, To: 8, Set: []sdk.Service{{Name: web}}}, sdk.Result{}) })
	if r := p.report(); r.Served != 8 || len(r.Unserved) > 0 {
		t.Errorf("after another update it reports %+v", r)
	}
}

// A process that was told to let go leaves the lock alone, and still owes what it planned.
func TestAForgottenClaimIsNotMade(t *testing.T) {
	shared := open(t, t.TempDir())
	first, p := held(t, shared), newPlanner(t, shared)
	p.plan(7)
	p.within(p.claim.Forget)
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond) // several tries
	p.within(func() {
		if p.lock != nil || p.wrote > 0 || !p.claim.Owes() {
			t.Errorf("it has %v, and wrote %d times", p.lock, p.wrote)
		}
	})
	if r := p.report(); r.Lock != sdk.LockReleased || r.Served != 0 {
		t.Errorf("it reports %+v", r)
	}
	held(t, shared)
}

// A session in which nothing was told owes nothing, though the lock is taken for it.
func TestAClaimOfANewSession(t *testing.T) {
	shared := open(t, t.TempDir())
	first, p := held(t, shared), newPlanner(t, shared)
	p.plan(7)
	p.within(p.claim.Begin)
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	p.until("has the lock", func(r sdk.Report) bool { return r.Lock == sdk.LockHeld })
	p.within(func() {
		if p.wrote > 0 || p.report().Served != 0 {
			t.Errorf("it wrote %d times, and reports %+v", p.wrote, p.report())
		}
	})
}

// It ends when it is closed, also while it tries.
func TestAClosedClaim(t *testing.T) {
	shared := open(t, t.TempDir())
	held(t, shared)
	p := newPlanner(t, shared)
	p.plan(7)
	done := make(chan struct{})
	go func() { p.claim.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
}
