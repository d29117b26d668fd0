// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// restartAdopts: what was served goes on without the process, and its successor
// adopts it, also if its role comes before its first update. One that dies with its
// process serves nothing until it is made Active.
func restartAdopts(t *trial) {
	t.needsEnd()
	s := t.scenario("cluster-ip")
	t.serve(s)
	t.stop()
	t.during("after a restart, before a first update")
	t.need(t.start())
	dies := limited(t.description, sdk.LimitDiesWithProcess)
	before := func() error { return t.differs(s) }
	if dies {
		before = func() error { return settledOrNoTestbed(t.packets(unserved(s))) }
	}
	t.need(before())
	t.during("after a restart, Active before a first update")
	t.role(sdk.Active)
	t.need(before())
	t.during("after a restart")
	t.serve(s)
	t.serves(s)
	if dies {
		t.fail(by(sdk.LimitDiesWithProcess))
	}
}

// foreignStays: what is not ours is after a life as it was before.
func foreignStays(t *trial) {
	if t.subject.Foreign == nil {
		t.fail(excused{"nothing can tell what else is on this node"})
	}
	s := t.scenario("cluster-ip")
	t.during("look at what is foreign")
	before, err := t.subject.Foreign(t.ctx)
	t.need(err)
	t.serve(s)
	t.cleans(sdk.Leftovers{})
	after, err := t.subject.Foreign(t.ctx)
	t.need(err)
	if before != after {
		t.fail(mismatch{before, after})
	}
}

// cleans is a Cleanup that goes well.
func (t *trial) cleans(l sdk.Leftovers) (names []string) {
	names, err := t.dp.Cleanup(t.ctx, l)
	if err != nil {
		t.fail(fmt.Errorf("clean up after %v: %w", names, err))
	}
	return names
}

func dryRunOnlyNames(t *trial) {
	s := t.scenario("cluster-ip")
	t.serve(s)
	t.during("after a dry run")
	if len(t.cleans(sdk.Leftovers{DryRun: true})) == 0 {
		t.fail(errors.New("Cleanup named nothing, though something is served"))
	}
	t.serves(s)
}

func cleanupLeavesNothing(t *trial) {
	s := t.scenario("cluster-ip")
	t.serve(s)
	if len(t.cleans(sdk.Leftovers{})) == 0 {
		t.fail(errors.New("Cleanup named nothing of what it removed"))
	}
	t.during("after Cleanup")
	if names, err := t.dp.Cleanup(t.ctx, sdk.Leftovers{DryRun: true}); err != nil || len(names) > 0 {
		t.fail(mismatch{"nothing left for a dry run to name", fmt.Sprintf("%q, %v", names, orNil(err))})
	}
	got, err := t.inspect()
	switch {
	case errors.Is(err, wire.ErrUnsupported):
	case err != nil:
		t.fail(fmt.Errorf("inspect: %w", err))
	case len(got) > 0:
		t.fail(mismatch{"nothing served", besides(got, nil)})
	}
	t.need(settledOrNoTestbed(t.packets(unserved(s))))
}

// cleanupOfNothing: in a life that has served nothing, and without Configure.
func cleanupOfNothing(t *trial) {
	t.cleans(sdk.Leftovers{})
	t.needsEnd()
	t.stop()
	var err error
	t.dp, err = t.subject.Start(t.ctx, t.stateDir)
	t.need(err)
	names, err := t.dp.Cleanup(t.ctx, sdk.Leftovers{})
	if err != nil || len(names) > 0 {
		t.fail(mismatch{"nothing to clean up on a clean node", fmt.Sprintf("%q, %v", names, orNil(err))})
	}
}

// unserved is s when no packet of it is ours.
func unserved(s Scenario) Scenario {
	s.Packets = slices.Clone(s.Packets)
	for i := range s.Packets {
		s.Packets[i].Want = Outcome{Unserved: true}
	}
	return s
}

// beginsInStandby: on a clean node the kernel shows no role, and no packet is caught
// before the host says so.
func beginsInStandby(t *trial) {
	s := t.scenario("cluster-ip")
	t.sync(s.Update(0))
	t.need(settled(t.packets(unserved(s))))
}

func anyRoleToAny(t *trial) {
	s := t.scenario("cluster-ip")
	t.serve(s)
	roles := []sdk.Role{sdk.Standby, sdk.Active, sdk.Draining, sdk.Yielded}
	for _, from := range roles {
		for _, to := range roles {
			t.during("from %s to %s", from, to)
			t.role(from)
			t.role(to)
		}
	}
	t.during("after all changes of role")
	t.serve(s)
	t.serves(s)
}

func onlyActiveCatches(t *trial) {
	s := t.scenario("cluster-ip")
	t.sync(s.Update(0))
	for _, role := range []sdk.Role{sdk.Standby, sdk.Active, sdk.Draining, sdk.Active, sdk.Standby} {
		expect := unserved(s)
		if role == sdk.Active {
			expect = s
		}
		t.during("%s", role)
		t.role(role)
		t.need(settled(t.packets(expect)))
	}
}

// yieldedCatchesUp: what it was sent while it had no right to write is served
// once it is Active again.
func yieldedCatchesUp(t *trial) {
	a, b := t.two()
	t.serve(a)
	t.during("while yielded")
	t.role(sdk.Yielded)
	t.sync(delta(a, b))
	t.during("active again")
	t.role(sdk.Active)
	t.serves(b)
}

// driftIsRepaired within five seconds, and some for a machine that is busy.
func driftIsRepaired(t *trial) {
	switch {
	case t.subject.Disturb != nil:
	case limited(t.description, sdk.LimitDiesWithProcess):
		t.fail(by(sdk.LimitDiesWithProcess)) // nothing else can take what is not in the kernel
	default:
		t.fail(notRun{"there is nothing to disturb it with"})
	}
	s := t.scenario("cluster-ip")
	t.serve(s)
	t.need(t.subject.Disturb(t.ctx))
	t.need(poll(t.ctx, 15*time.Second, func() error { return t.differs(s) }))
}

// poll calls f until it returns nil or the time is up; then it returns f's last
// error.
func poll(ctx context.Context, within time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s still: %w", within, err)
		case <-tick.C:
		}
	}
}

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
		t.fail(mismatch{"the second to tell which steps it planned", fmt.Sprintf("Planned is %t%s", r.Planned, stepsOf(r))})
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
			t.fail(mismatch{"the second, which has no lock, to serve", "it only plans" + stepsOf(r)})
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
