// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"errors"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// soonWrites is how long a life may take until it has the lock and has written: the
// contract's second, and some for a machine that is busy.
const soonWrites = 15 * time.Second

// besideFirst begins a second life beside one that serves a, and tells it of b. It
// plans, and says so: also where there is nothing to do. Where nothing stays in the kernel
// there is no lock, and the second serves when it is made Active.
func besideFirst(t *trial) (second *trial, b Scenario, locks bool) {
	a, b := t.two()
	t.serve(a)
	t.during("start a second")
	second = t.another()
	second.during("the second")
	r, err := second.offer(a.Update(0))
	second.need(err)
	if !r.Planned {
		if limited(t.description, sdk.LimitDiesWithProcess) && len(r.Steps) == 0 {
			return second, b, false
		}
		t.fail(mismatch{"the second to say that it only planned what is there already (Result.Planned)", "Planned is false"})
	}
	r, err = second.offer(delta(a, b))
	second.need(err)
	if !r.Planned || len(r.Steps) == 0 {
		t.fail(mismatch{"the second to tell which steps it planned", fmt.Sprintf("Planned is %t, with %d steps", r.Planned, len(r.Steps))})
	}
	t.during("after a second only planned")
	t.serves(a)
	second.need(second.reports(sdk.LockAwaited))
	return second, b, true
}

// reports holds its Report to how it stands with the lock. Only the writer serves what
// it was sent.
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

// report returns what the dataplane says of itself.
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

// writes waits until it serves s, without another call, and says that it is the writer.
func (t *trial) writes(s Scenario) {
	t.need(poll(t.ctx, soonWrites, func() error { return errors.Join(t.differs(s), t.reports(sdk.LockHeld)) }))
}

// secondOnlyPlans: two lives at once, of which the first has the lock.
func secondOnlyPlans(t *trial) {
	second, b, locks := besideFirst(t)
	if !locks {
		r, err := second.offer(b.Update(0))
		second.need(err)
		if r.Planned {
			t.fail(mismatch{"the second, which has no lock, to serve", "it only plans"})
		}
	}
	t.role(sdk.Yielded)
	second.during("after the first yielded")
	second.role(sdk.Active)
	if !locks {
		second.serves(b)
		t.fail(by(sdk.LimitDiesWithProcess))
	}
	second.writes(b)
}

// secondTakesOver by itself: what it planned is written when the first is gone, without
// another Sync or role.
func secondTakesOver(leaves func(first *trial)) func(*trial) {
	return func(t *trial) {
		second, b, locks := besideFirst(t)
		if !locks {
			t.fail(by(sdk.LimitDiesWithProcess))
		}
		leaves(t)
		second.writes(b)
	}
}

// yieldedNeverTries: a dataplane that has yielded leaves a free lock alone, and plans.
func yieldedNeverTries(t *trial) {
	a, b := t.two()
	t.serve(a)
	t.role(sdk.Yielded)
	t.during("while yielded")
	r, err := t.offer(delta(a, b))
	t.need(err)
	dies := limited(t.description, sdk.LimitDiesWithProcess)
	if !r.Planned && dies {
		t.fail(by(sdk.LimitDiesWithProcess)) // it has no lock
	}
	if !r.Planned {
		t.fail(mismatch{"one that has yielded only to plan (Result.Planned)", "Planned is false"})
	}
	time.Sleep(time.Second) // longer than between two tries
	if dies {
		return // what serves went with its role
	}
	t.during("a second after it yielded")
	t.serves(a)
	if report, err := t.report(); err == nil && report.Lock == sdk.LockHeld {
		t.fail(mismatch{"one that has yielded to leave the lock alone", "its Report says that it has the lock"})
	}
}
