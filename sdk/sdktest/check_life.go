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
// adopts it. One that dies with its process serves nothing until it is told to.
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
	if !dies {
		if err := t.serves(s); err != nil {
			return fmt.Errorf("after a restart, before a first update: %w", err)
		}
	}
	if err := t.serve(s); err != nil {
		return err
	}
	if err := t.serves(s); err != nil {
		return fmt.Errorf("after a restart: %w", err)
	}
	if dies {
		return byLimits{[]sdk.Limit{sdk.LimitDiesWithProcess}}
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
		return fmt.Errorf("after Cleanup there is still %v (%w)", names, orNil(err))
	}
	got, err := t.inspect()
	switch {
	case errors.Is(err, wire.ErrUnsupported):
	case err != nil:
		return fmt.Errorf("inspect: %w", err)
	case len(got) > 0:
		return fmt.Errorf("after Cleanup it serves %v", got)
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
		return fmt.Errorf("cleaning up a clean node named %v (%w)", names, orNil(err))
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

// secondOnlyPlans: two lives at once, of which the first has the lock.
func secondOnlyPlans(t *trial) error {
	if limited(t.description, sdk.LimitDiesWithProcess) {
		return byLimits{[]sdk.Limit{sdk.LimitDiesWithProcess}}
	}
	a, b, err := t.two()
	if err != nil {
		return err
	}
	if err := t.serve(a); err != nil {
		return err
	}
	second := &trial{subject: t.subject, ctx: t.ctx, stateDir: t.stateDir}
	if err := second.start(); err != nil {
		return fmt.Errorf("start a second: %w", err)
	}
	defer second.stop()
	r, err := second.offer(b.Update(0))
	if err != nil {
		return fmt.Errorf("the second: %w", err)
	}
	if len(r.Steps) == 0 {
		return errors.New("a second instance told no steps that it only planned")
	}
	if err := t.serves(a); err != nil {
		return fmt.Errorf("after a second only planned: %w", err)
	}
	if err := errors.Join(t.role(sdk.Yielded), second.role(sdk.Active)); err != nil {
		return err
	}
	return second.serves(b)
}

// driftIsRepaired within five seconds, and some for a machine that is busy.
func driftIsRepaired(t *trial) error {
	if limited(t.description, sdk.LimitDiesWithProcess) {
		return byLimits{[]sdk.Limit{sdk.LimitDiesWithProcess}}
	}
	if t.subject.Disturb == nil {
		return notRun{"nothing was given to disturb it with"}
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
