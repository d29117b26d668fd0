// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"errors"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// errNoLock is where a second life is served beside the first, because nothing stays in
// the kernel.
var errNoLock = errors.New("it has no writer's lock")

// soonWrites is how long a life may take until it has the lock and has written: the
// contract's second, and some for a machine that is busy.
const soonWrites = 15 * time.Second

// besideFirst begins a second life beside one that serves a, and tells it of b. It
// plans, and says so: also where there is nothing to do.
func besideFirst(t *trial) (second *trial, a, b Scenario, err error) {
	if a, b, err = t.two(); err != nil {
		return nil, a, b, err
	}
	if err := t.serve(a); err != nil {
		return nil, a, b, err
	}
	second = &trial{subject: t.subject, ctx: t.ctx, stateDir: t.stateDir}
	if err := second.start(); err != nil {
		return nil, a, b, fmt.Errorf("start a second: %w", err)
	}
	r, err := second.offer(a.Update(0))
	if err != nil {
		return second, a, b, fmt.Errorf("the second: %w", err)
	}
	if !r.Planned {
		if limited(t.description, sdk.LimitDiesWithProcess) && len(r.Steps) == 0 {
			return second, a, b, errNoLock
		}
		return second, a, b, mismatch{"the second to say that it only planned what is there already (Result.Planned)", "Planned is false"}
	}
	if r, err = second.offer(delta(a, b)); err != nil {
		return second, a, b, fmt.Errorf("the second: %w", err)
	}
	if !r.Planned || len(r.Steps) == 0 {
		return second, a, b, mismatch{"the second to tell which steps it planned", fmt.Sprintf("Planned is %t, with %d steps", r.Planned, len(r.Steps))}
	}
	if err := t.serves(a); err != nil {
		return second, a, b, fmt.Errorf("after a second only planned: %w", err)
	}
	return second, a, b, second.reports(sdk.LockAwaited)
}

// reports holds its Report to how it stands with the lock. Only the writer serves what
// it was told.
func (t *trial) reports(lock sdk.Lock) error {
	r, err := t.report()
	if err != nil {
		return err
	}
	served := uint64(0)
	if lock == sdk.LockHeld {
		served = t.revision
	}
	if r.Lock != lock || r.Served != served || len(r.Unserved) > 0 {
		return mismatch{fmt.Sprintf("its Report to say: lock %s, revision %d served", lock, served),
			fmt.Sprintf("lock %s, revision %d served, %d failed", r.Lock, r.Served, len(r.Unserved))}
	}
	return nil
}

// report is what the dataplane says of itself.
func (t *trial) report() (sdk.Report, error) {
	switch dp := t.dp.(type) {
	case *wire.Remote:
		v, err := dp.Vitals(t.ctx)
		return v.Report, err
	case sdk.Reporter:
		return dp.Report(), nil
	}
	return sdk.Report{}, mismatch{"a Report that says how it stands with the writer's lock", "it has no Report"}
}

// took polls until it serves s, without another call, and says that it is the writer.
func (t *trial) took(s Scenario) error {
	return poll(t.ctx, soonWrites, func() error { return errors.Join(t.serves(s), t.reports(sdk.LockHeld)) })
}

// secondOnlyPlans: two lives at once, of which the first has the lock. Where nothing
// stays in the kernel there is none, and the second serves when it is told to.
func secondOnlyPlans(t *trial) error {
	second, _, b, err := besideFirst(t)
	if second != nil {
		defer second.leave()
	}
	without := errors.Is(err, errNoLock)
	if without {
		if r, err := second.offer(b.Update(0)); err != nil || r.Planned {
			return fmt.Errorf("the second plans, though it has no lock: %w", orNil(err))
		}
	} else if err != nil {
		return err
	}
	if err := errors.Join(t.role(sdk.Yielded), second.role(sdk.Active)); err != nil {
		return err
	}
	if without {
		if err := second.serves(b); err != nil {
			return fmt.Errorf("after the first yielded: %w", err)
		}
		return by(sdk.LimitDiesWithProcess)
	}
	if err := second.took(b); err != nil {
		return fmt.Errorf("after the first yielded: %w", err)
	}
	return nil
}

// secondTakesOver by itself: what it planned is written when the first is gone, without
// another Sync or role.
func secondTakesOver(t *trial, first func() error) error {
	second, _, b, err := besideFirst(t)
	if second != nil {
		defer second.leave()
	}
	if errors.Is(err, errNoLock) {
		return by(sdk.LimitDiesWithProcess)
	}
	if err != nil {
		return err
	}
	if err := first(); err != nil {
		return err
	}
	return second.took(b)
}

// leave ends the second life, and takes away what it wrote: the first may be gone.
func (t *trial) leave() {
	_, _ = t.dp.Cleanup(t.ctx, sdk.Leftovers{})
	t.stop()
}

func afterYield(t *trial) error {
	return secondTakesOver(t, func() error { return t.role(sdk.Yielded) })
}

func afterDeath(t *trial) error {
	return secondTakesOver(t, func() error { t.stop(); return nil })
}

// yieldedNeverTries: who has yielded leaves a free lock alone, and plans.
func yieldedNeverTries(t *trial) error {
	a, b, err := t.two()
	if err != nil {
		return err
	}
	if err := errors.Join(t.serve(a), t.role(sdk.Yielded)); err != nil {
		return err
	}
	r, err := t.offer(delta(a, b))
	if err != nil {
		return fmt.Errorf("while yielded: %w", err)
	}
	dies := limited(t.description, sdk.LimitDiesWithProcess)
	if !r.Planned && dies {
		return by(sdk.LimitDiesWithProcess) // it has no lock
	}
	if !r.Planned {
		return mismatch{"one that has yielded only to plan (Result.Planned)", "Planned is false"}
	}
	time.Sleep(time.Second) // longer than between two tries
	if dies {
		return nil // what serves went with its role
	}
	if err := t.serves(a); err != nil {
		return fmt.Errorf("a second after it yielded: %w", err)
	}
	if report, err := t.report(); err == nil && report.Lock == sdk.LockHeld {
		return mismatch{"one that has yielded to leave the lock alone", "its Report says that it has the lock"}
	}
	return nil
}
