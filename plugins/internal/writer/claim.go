// SPDX-License-Identifier: Apache-2.0

// Package writer has one process write at a time: a Claim is how a process comes to the
// writer's lock of its mode (contract line 8), and a Cleaned tells the process that has it
// that another one cleaned up.
package writer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A Claim is that of one process to the writer's lock of its mode. While another process has
// the lock it tries again between calls, and has what was planned written once the lock is
// there:
//
//	          Lock: another has it          Lock, or a try: it is ours
//	released ────────────────────▶ awaited ───────────────────────────▶ held
//	   ▲                              │                                   │
//	   └─────────── Forget ───────────┴─────────────── Forget ────────────┘
//
// All its methods but Tell and Close are for what holds the semaphore of its process.
type Claim struct {
	mode string
	plan Planner

	ctx     context.Context // of the tries
	stop    context.CancelFunc
	running sync.WaitGroup
	trying  bool // whether a goroutine tries; it is guarded by the semaphore

	mu       sync.Mutex // guards what follows, which Tell reads beside a call
	lock     sdk.Lock
	holder   sdk.Holder
	received uint64 // the revision that the process was told last, in this session
	served   uint64 // and the one that is written
	unserved map[sdk.Name]error
}

// A Planner is a dataplane, as its Claim sees it.
type Planner struct {
	// Enter waits for the semaphore. Work by it ends with the context that Enter returns.
	Enter func(context.Context) (work context.Context, leave func(), err error)

	// Lock tries the writer's lock, by Claim.Lock, where the process wants it.
	Lock func() error

	// Write writes all that was planned, with the lock held, and tells Claim.Wrote what
	// failed. It adopts first what the kernel has.
	Write func(context.Context) error

	Log func() *slog.Logger
}

// The lock is tried often at first: mostly its holder is about to end. Writing may take
// as long as an update, and is tried again as an update is.
const (
	tryOften  = 100 * time.Millisecond
	oftenFor  = 3 * time.Second
	trySeldom = time.Second
	writeFor  = 3 * time.Minute
)

// NewClaim is a claim to the lock of mode that was not made yet.
func NewClaim(mode string, p Planner) *Claim {
	c := &Claim{mode: mode, plan: p}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Lock takes the lock, or begins to try for it. It is nil while another process has it.
func (c *Claim) Lock(shared *ledger.Ledger) (*ledger.Lock, error) {
	lock, err := shared.TryLock(c.mode)
	var locked *ledger.Locked
	switch {
	case errors.As(err, &locked):
		if was, holder := c.set(sdk.LockAwaited, locked.Holder); was != sdk.LockAwaited || holder != locked.Holder {
			c.plan.Log().Info("another process is the writer: only planning", "mode", c.mode, "holder", locked.Holder.String())
		}
		if !c.trying {
			c.trying = true
			c.running.Go(c.keepTrying) // ends when there is nothing to try for, or with Close
		}
		return nil, nil
	case err != nil:
		return nil, err
	}
	if was, _ := c.set(sdk.LockHeld, sdk.Holder{}); was == sdk.LockAwaited {
		c.plan.Log().Info("this process is the writer now", "mode", c.mode)
	}
	return lock, nil
}

// set says how it stands with the lock, and returns how it stood.
func (c *Claim) set(lock sdk.Lock, holder sdk.Holder) (was sdk.Lock, by sdk.Holder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, by = c.lock, c.holder
	c.lock, c.holder = lock, holder
	if lock != sdk.LockHeld {
		c.served = 0 // the process that has the lock may write something else
	}
	return was, by
}

// Forget gives up the claim: the process has let go of the lock, or wants it no more. What
// it was sent it still owes, for when it is wanted again.
func (c *Claim) Forget() { c.set(sdk.LockReleased, sdk.Holder{}) }

// Begin begins a session, in which nothing was told yet.
func (c *Claim) Begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received, c.served, c.unserved = 0, 0, nil
}

// Owes reports whether something was planned that is not written.
func (c *Claim) Owes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.received > c.served
}

// Took notes that u was written or planned, as the result says, and returns the result.
func (c *Claim) Took(u sdk.Update, r sdk.Result) sdk.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = u.To
	if u.Full {
		c.unserved = nil
	}
	for i := range u.Set {
		delete(c.unserved, u.Set[i].Name)
	}
	for _, name := range u.Delete {
		delete(c.unserved, name)
	}
	if !r.Planned {
		c.served = u.To
	}
	return r
}

// Wrote notes that all that was planned is written, but for what failed.
func (c *Claim) Wrote(failed []sdk.Failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served = c.received
	c.unserved = make(map[sdk.Name]error, len(failed))
	for _, f := range failed {
		c.unserved[f.Name] = f.Err
	}
}

// Tell adds to r how it stands with the lock.
func (c *Claim) Tell(r *sdk.Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Lock, r.Holder, r.Served = c.lock, c.holder, c.served
	for name, err := range c.unserved {
		r.Unserved = append(r.Unserved, sdk.Failure{Name: name, Err: err})
	}
	slices.SortFunc(r.Unserved, func(a, b sdk.Failure) int { return a.Name.Compare(b.Name) })
}

// Close ends the tries. It is called without the semaphore, which a try may have.
func (c *Claim) Close() {
	c.stop()
	c.running.Wait()
}

// keepTrying tries until there is nothing to try for, or the claim is closed.
func (c *Claim) keepTrying() {
	began := time.Now()
	for done := false; !done; {
		wait := tryOften
		if time.Since(began) > oftenFor {
			wait = trySeldom
		}
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(wait):
		}
		work, leave, err := c.plan.Enter(c.ctx)
		if err != nil {
			return // Close
		}
		done = c.try(work)
		c.trying = !done
		leave()
	}
}

// try tries once. It is done when the process does not want the lock, or has it and has
// written what it was sent.
func (c *Claim) try(ctx context.Context) (done bool) {
	if c.state() == sdk.LockReleased {
		return true
	}
	if err := c.plan.Lock(); err != nil {
		c.plan.Log().Warn("cannot take the writer's lock; trying again", "mode", c.mode, "err", err)
		return false
	}
	if c.state() == sdk.LockAwaited {
		return false
	}
	if !c.Owes() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, writeFor)
	defer cancel()
	err := c.plan.Write(ctx)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) { // else a call goes first, and writes it
		c.plan.Log().Warn("cannot write what was planned; trying again", "mode", c.mode, "err", err)
	}
	return err == nil
}

func (c *Claim) state() sdk.Lock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lock
}
