// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// restartAdopts checks that Services are served while no process runs, with every new
// connection answered, and that the next process adopts the rules, even if its role is set
// before its first update. A dataplane that dies with its process serves nothing until it is
// Active.
func restartAdopts(t *trial) {
	s := t.scenario("cluster-ip")
	t.serve(s)
	answered := func(string) error { return nil }
	if t.subject.Testbed != nil && !limited(t.description, sdk.LimitDiesWithProcess) {
		answered = t.startCalls(s).waitForMore
	}
	t.need(answered("before a restart"))
	t.stop()
	t.need(answered("without a process"))
	t.during("after a restart, before a first update")
	t.need(t.start())
	dies := limited(t.description, sdk.LimitDiesWithProcess)
	before := func() error { return t.differs(s) }
	if dies {
		before = func() error { return ignoreLimitsOrNoTestbed(t.packets(unserved(s))) }
	}
	t.need(before())
	t.during("after a restart, Active before a first update")
	t.role(sdk.Active)
	t.need(before())
	t.during("after a restart")
	t.serve(s)
	t.serves(s)
	t.need(answered("after a restart"))
	if dies {
		t.fail(by(sdk.LimitDiesWithProcess))
	}
}

// foreignStays checks that foreign objects are the same before and after a life.
func foreignStays(t *trial) {
	if t.subject.Foreign == nil {
		t.fail(excused{"the test has no list of foreign objects (Subject.Foreign)"})
	}
	s := t.scenario("cluster-ip")
	t.during("list foreign objects")
	before, err := t.subject.Foreign(t.ctx)
	t.need(err)
	t.serve(s)
	t.mustCleanUp(sdk.Leftovers{})
	after, err := t.subject.Foreign(t.ctx)
	t.need(err)
	if before != after {
		t.fail(mismatch{before, after})
	}
}

// mustCleanUp calls Cleanup, which must succeed.
func (t *trial) mustCleanUp(l sdk.Leftovers) (names []string) {
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
	if len(t.mustCleanUp(sdk.Leftovers{DryRun: true})) == 0 {
		t.fail(errors.New("a dry run of Cleanup named nothing, although Services are served"))
	}
	t.serves(s)
}

func cleanupLeavesNothing(t *trial) {
	s := t.scenario("cluster-ip")
	t.serve(s)
	if len(t.mustCleanUp(sdk.Leftovers{})) == 0 {
		t.fail(errors.New("a Cleanup after Services were served named nothing"))
	}
	t.during("after Cleanup")
	if names, err := t.dp.Cleanup(t.ctx, sdk.Leftovers{DryRun: true}); err != nil || len(names) > 0 {
		t.fail(mismatch{"nothing left for a dry run to name", fmt.Sprintf("%q, %v", names, err)})
	}
	gone := unserved(s)
	t.need(ignoreLimitsOrNoTestbed(t.packets(gone)))
	gone.Services = nil
	t.serves(gone)
}

// cleanupOfNothing checks Cleanup in a life that has served nothing and was not configured.
func cleanupOfNothing(t *trial) {
	t.mustCleanUp(sdk.Leftovers{})
	t.stop()
	var err error
	t.dp, err = t.subject.Start(t.ctx, t.stateDir)
	t.need(err)
	names, err := t.dp.Cleanup(t.ctx, sdk.Leftovers{})
	if err != nil || len(names) > 0 {
		t.fail(mismatch{"nothing to clean up on a clean node", fmt.Sprintf("%q, %v", names, err)})
	}
}

// unserved returns s with the expectation that no Service serves its packets.
func unserved(s Scenario) Scenario {
	s.Packets = slices.Clone(s.Packets)
	for i := range s.Packets {
		s.Packets[i].Want = Outcome{Unserved: true}
	}
	return s
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
			t.shows(to)
		}
	}
	t.during("after all changes of role")
	t.role(sdk.Active)
	t.serve(s)
	t.serves(s)
}

// shows fails if the dataplane reports a different role than r as shown by the node. A yielded
// dataplane does not know the role, and a dataplane that keeps nothing on the node need not
// report it.
func (t *trial) shows(r sdk.Role) {
	var report sdk.Report
	switch d := t.dp.(type) {
	case *wire.Remote:
		v, err := d.Vitals(t.ctx)
		t.need(err)
		report = v.Report
	case sdk.Reporter:
		report = d.Report()
	}
	if r != sdk.Yielded && report.Shown != 0 && report.Shown != r {
		t.fail(mismatch{"the role " + r.String() + " to be shown", report.Shown.String()})
	}
}

// onlyActiveCatches checks that only the role Active receives packets, and that none are received
// before the first role is set.
func onlyActiveCatches(t *trial) {
	s := t.scenario("cluster-ip")
	t.sync(s.Update(0))
	t.need(ignoreLimits(t.packets(unserved(s))))
	for _, role := range []sdk.Role{sdk.Standby, sdk.Active, sdk.Draining, sdk.Active, sdk.Standby} {
		expect := unserved(s)
		if role == sdk.Active {
			expect = s
		}
		t.during("%s", role)
		t.role(role)
		t.need(ignoreLimits(t.packets(expect)))
	}
}

// yieldedCatchesUp checks that an update that a yielded dataplane accepted, or refused with
// *sdk.Busy, is served once it is Active again.
func yieldedCatchesUp(t *trial) {
	a, b := t.twoScenarios()
	t.serve(a)
	t.during("while yielded")
	t.role(sdk.Yielded)
	err := t.syncOnce(delta(a, b))
	t.during("active again")
	t.role(sdk.Active)
	if errors.As(err, new(*sdk.Busy)) {
		err = t.syncAll(delta(a, b))
	}
	t.need(err)
	t.serves(b)
}

// driftIsRepaired checks that drift is repaired, within fifteen seconds instead of the contract's
// five, because the machine may be busy.
func driftIsRepaired(t *trial) {
	switch {
	case t.subject.Disturb != nil:
	case limited(t.description, sdk.LimitDiesWithProcess):
		t.fail(by(sdk.LimitDiesWithProcess)) // other programs cannot change what is not in the kernel
	default:
		t.fail(notRun{"the test has no way to cause drift (Subject.Disturb)"})
	}
	s := t.scenario("cluster-ip")
	t.serve(s)
	t.need(t.subject.Disturb(t.ctx))
	t.need(poll(t.ctx, 15*time.Second, func() error { return t.differs(s) }))
}

// secondTakesOver checks that a second life changes nothing while the first life holds the writer's
// lock, and that it serves once release has made the first life release the lock.
func secondTakesOver(release func(first *trial)) func(*trial) {
	return func(t *trial) {
		a, b := t.twoScenarios()
		t.serve(a)
		t.during("start a second")
		second := t.secondLife()
		second.during("the second")
		err := second.syncOnce(b.Update(0))
		unlocked := err == nil && limited(t.description, sdk.LimitDiesWithProcess) // two processes need no lock
		if !unlocked && !errors.As(err, new(*sdk.Busy)) {
			second.fail(mismatch{"a *sdk.Busy, since it does not hold the writer's lock", fmt.Sprint(err)})
		}
		t.during("beside a second")
		t.serves(a)
		release(t)
		second.during("the second, after the first released the lock")
		second.sync(b.Update(0))
		second.role(sdk.Active)
		second.serves(b)
		if unlocked {
			t.fail(by(sdk.LimitDiesWithProcess))
		}
	}
}

// inspectsInStandby checks Inspect in Standby: before a swap the host compares its result with
// what it sent, and continues only if they are equal. A dataplane that dies with its process
// answers from memory, because nothing is in the kernel yet.
func inspectsInStandby(t *trial) {
	s := t.scenario("cluster-ip")
	t.role(sdk.Standby)
	t.sync(s.Update(0))
	t.during("Inspect in Standby, which must name what Active would serve")
	if _, err := t.inspect(); errors.Is(err, wire.ErrUnsupported) {
		t.fail(excused{"it has no Inspect, so a host cannot verify a swap to it, and reports that in an event"})
	}
	t.serves(s)
	t.role(sdk.Active)
	t.role(sdk.Standby)
	t.during("Inspect in Standby, after Active")
	t.serves(s)
}

// swapsUnderLoad starts a second life in Standby beside one that serves, swaps to it and back
// as a host does, and opens connections all the time.
func swapsUnderLoad(t *trial) {
	s := t.calling("cluster-ip", 1)
	t.serve(s)
	second := t.secondLife()
	second.during("the second, beside one that serves")
	err := second.syncOnce(s.Update(0))
	if errors.As(err, new(*sdk.Busy)) {
		t.fail(excused{"two processes of it cannot be Active at the same time, because one holds the writer's lock"})
	}
	second.need(err)
	c := t.startCalls(s)
	t.need(c.waitForMore("before a swap"))
	second.role(sdk.Standby)
	if _, err := second.inspect(); !errors.Is(err, wire.ErrUnsupported) {
		second.serves(s)
	}
	second.during("made Active beside the first, which is Active (a relay listens with SO_REUSEPORT)")
	second.role(sdk.Active)
	t.need(c.waitForMore("swapped to the second, while both are Active"))
	t.role(sdk.Draining)
	t.need(c.waitForMore("swapped to the second"))
	t.during("made Active again beside the second")
	t.role(sdk.Active)
	second.role(sdk.Draining)
	t.need(c.waitForMore("swapped back to the first"))
}

// A caller opens connections one after the other, until the check ends or one fails.
type caller struct {
	silent   bool // no packet can reach the dataplane, so nothing is opened
	answered atomic.Int64
	failed   chan error // why a connection was not answered
}

// startCalls starts to open connections to the frontends of s.
func (t *trial) startCalls(s Scenario) *caller {
	stage, err := t.stage(s)
	t.need(err)
	t.cleanup(func() { stage.Close() })
	packets := slices.DeleteFunc(slices.Clone(s.Packets), func(p Packet) bool { return p.Want.Unserved || p.Want.Verdict != sdk.Forward })
	_, memory := stage.(said)
	c := &caller{silent: memory || len(packets) == 0, failed: make(chan error, 1)}
	if c.silent {
		return c
	}
	ctx, cancel := context.WithCancel(t.ctx)
	done := make(chan struct{})
	go func() { // ends with the check
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			if err := call(ctx, stage, packets[i%len(packets)]); err != nil {
				c.failed <- err
				return
			}
			c.answered.Add(1)
			time.Sleep(5 * time.Millisecond) // so that the caller does not run out of ports
		}
	}()
	t.cleanup(func() { cancel(); <-done })
	return c
}

// call opens one connection. The kernel resets connections that a listener has not accepted
// when it is closed, so call retries once, and the retry must succeed.
func call(ctx context.Context, stage Stage, p Packet) (err error) {
	for range 2 {
		a, failed := stage.Send(ctx, p)
		if failed == nil && a.Verdict == sdk.Forward && slices.Contains(p.Want.Endpoints, a.Endpoint) {
			return nil
		}
		text, _, _ := strings.Cut(p.Text, " = ")
		err = fmt.Errorf("a new connection, %s: %w", text, unexpected(p.Want.String(), a, failed))
	}
	return err
}

// waitForMore waits until some more connections have succeeded during a part of the check, or one has
// failed.
func (c *caller) waitForMore(part string) error {
	for until := c.answered.Load() + 20; !c.silent && c.answered.Load() < until; {
		select {
		case err := <-c.failed:
			return fmt.Errorf("%s: %w", part, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}
