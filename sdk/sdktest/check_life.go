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
// process serves nothing until it is told to.
func restartAdopts(t *trial) error {
	s, err := t.scenario("cluster-ip")
	if err != nil {
		return err
	}
	if err := t.serve(s); err != nil {
		return err
	}
	t.stop()
	if err := t.start(); err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	dies := limited(t.description, sdk.LimitDiesWithProcess)
	before := func() error { return t.serves(s) }
	if dies {
		before = func() error { return settledOrNoGround(t.packets(unserved(s))) }
	}
	if err := before(); err != nil {
		return fmt.Errorf("after a restart, before a first update: %w", err)
	}
	if err := t.role(sdk.Active); err != nil {
		return err
	}
	if err := before(); err != nil {
		return fmt.Errorf("after a restart, Active before a first update: %w", err)
	}
	if err := t.serve(s); err != nil {
		return err
	}
	if err := t.serves(s); err != nil {
		return fmt.Errorf("after a restart: %w", err)
	}
	if dies {
		return by(sdk.LimitDiesWithProcess)
	}
	return nil
}

// foreignStays: what is not ours is after a life as it was before.
func foreignStays(t *trial) error {
	if t.subject.Foreign == nil {
		return excused{"nobody can say what else is on this node"}
	}
	s, err := t.scenario("cluster-ip")
	if err != nil {
		return err
	}
	before, err := t.subject.Foreign(t.ctx)
	if err != nil {
		return fmt.Errorf("look at what is foreign: %w", err)
	}
	if err := t.serve(s); err != nil {
		return err
	}
	if _, err := t.dp.Cleanup(t.ctx, sdk.Leftovers{}); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	after, err := t.subject.Foreign(t.ctx)
	if err != nil {
		return fmt.Errorf("look at what is foreign: %w", err)
	}
	if before != after {
		return mismatch{before, after}
	}
	return nil
}

func dryRunOnlyNames(t *trial) error {
	s, err := t.scenario("cluster-ip")
	if err != nil {
		return err
	}
	if err := t.serve(s); err != nil {
		return err
	}
	names, err := t.dp.Cleanup(t.ctx, sdk.Leftovers{DryRun: true})
	if err != nil {
		return fmt.Errorf("clean up, dry run: %w", err)
	}
	if len(names) == 0 {
		return errors.New("a dry run of Cleanup named nothing, though something is served")
	}
	if err := t.serves(s); err != nil {
		return fmt.Errorf("after a dry run: %w", err)
	}
	return nil
}

func cleanupLeavesNothing(t *trial) error {
	s, err := t.scenario("cluster-ip")
	if err != nil {
		return err
	}
	if err := t.serve(s); err != nil {
		return err
	}
	names, err := t.dp.Cleanup(t.ctx, sdk.Leftovers{})
	if err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	if len(names) == 0 {
		return errors.New("Cleanup named nothing of what it removed")
	}
	if names, err = t.dp.Cleanup(t.ctx, sdk.Leftovers{DryRun: true}); err != nil || len(names) > 0 {
		return fmt.Errorf("a dry run after Cleanup: %w", mismatch{"nothing left to name", fmt.Sprintf("%q, %v", names, orNil(err))})
	}
	got, err := t.inspect()
	switch {
	case errors.Is(err, wire.ErrUnsupported):
	case err != nil:
		return fmt.Errorf("inspect: %w", err)
	case len(got) > 0:
		return fmt.Errorf("after Cleanup: %w", mismatch{"nothing served", besides(got, nil)})
	}
	return settledOrNoGround(t.packets(unserved(s)))
}

// cleanupOfNothing: in a life that has served nothing, and without Configure.
func cleanupOfNothing(t *trial) error {
	if names, err := t.dp.Cleanup(t.ctx, sdk.Leftovers{}); err != nil {
		return fmt.Errorf("clean up after %v: %w", names, err)
	}
	t.stop()
	var err error
	if t.dp, err = t.subject.Start(t.ctx, t.stateDir); err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	names, err := t.dp.Cleanup(t.ctx, sdk.Leftovers{})
	if err != nil || len(names) > 0 {
		return mismatch{"nothing to clean up on a clean node", fmt.Sprintf("%q, %v", names, orNil(err))}
	}
	return nil
}

// unserved is s when nobody serves it.
func unserved(s Scenario) Scenario {
	s.Packets = slices.Clone(s.Packets)
	for i := range s.Packets {
		s.Packets[i].Want = Outcome{Unserved: true}
	}
	return s
}

// beginsInStandby: on a clean node the kernel shows no role, and nobody is caught
// before the host says so.
func beginsInStandby(t *trial) error {
	s, err := t.scenario("cluster-ip")
	if err != nil {
		return err
	}
	if err := t.sync(s.Update(0)); err != nil {
		return err
	}
	return settled(t.packets(unserved(s)))
}

func anyRoleToAny(t *trial) error {
	s, err := t.scenario("cluster-ip")
	if err != nil {
		return err
	}
	if err := t.serve(s); err != nil {
		return err
	}
	roles := []sdk.Role{sdk.Standby, sdk.Active, sdk.Draining, sdk.Yielded}
	for _, from := range roles {
		for _, to := range roles {
			if err := errors.Join(t.role(from), t.role(to)); err != nil {
				return fmt.Errorf("from %s to %s: %w", from, to, err)
			}
		}
	}
	if err := t.serve(s); err != nil {
		return err
	}
	return t.serves(s)
}

func onlyActiveCatches(t *trial) error {
	s, err := t.scenario("cluster-ip")
	if err != nil {
		return err
	}
	if err := t.sync(s.Update(0)); err != nil {
		return err
	}
	for _, step := range []struct {
		role   sdk.Role
		expect Scenario
	}{
		{sdk.Standby, unserved(s)}, {sdk.Active, s}, {sdk.Draining, unserved(s)}, {sdk.Active, s}, {sdk.Standby, unserved(s)},
	} {
		if err := t.role(step.role); err != nil {
			return err
		}
		if err := settled(t.packets(step.expect)); err != nil {
			return fmt.Errorf("%s: %w", step.role, err)
		}
	}
	return nil
}

// yieldedCatchesUp: what it was told while it had no right to write is served
// once it is Active again.
func yieldedCatchesUp(t *trial) error {
	a, b, err := t.two()
	if err != nil {
		return err
	}
	if err := t.serve(a); err != nil {
		return err
	}
	if err := t.role(sdk.Yielded); err != nil {
		return err
	}
	if err := t.sync(delta(a, b)); err != nil {
		return fmt.Errorf("while yielded: %w", err)
	}
	if err := t.role(sdk.Active); err != nil {
		return err
	}
	return t.serves(b)
}

// driftIsRepaired within five seconds, and some for a machine that is busy.
func driftIsRepaired(t *trial) error {
	switch {
	case t.subject.Disturb != nil:
	case limited(t.description, sdk.LimitDiesWithProcess):
		return by(sdk.LimitDiesWithProcess) // nobody can take what is not in the kernel
	default:
		return notRun{"there is nothing to disturb it with"}
	}
	s, err := t.scenario("cluster-ip")
	if err != nil {
		return err
	}
	if err := t.serve(s); err != nil {
		return err
	}
	if err := t.subject.Disturb(t.ctx); err != nil {
		return fmt.Errorf("disturb: %w", err)
	}
	return poll(t.ctx, 15*time.Second, func() error { return t.serves(s) })
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
