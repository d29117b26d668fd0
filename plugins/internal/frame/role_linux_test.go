// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// TestRoleBeforeFirstUpdate: a process that adopts what another one left writes nothing
// before it knows what is desired, in whichever role.
func TestRoleBeforeFirstUpdate(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	first := begin(t, k, dir)
	first.full(service(1, 2))
	first.become(sdk.Active)
	_ = first.Close()
	before := k.written()
	second := begin(t, k, dir)
	for _, r := range []sdk.Role{sdk.Active, sdk.Draining, sdk.Standby, sdk.Yielded, sdk.Active, sdk.Standby} {
		second.become(r)
		k.expect(t, service(1, 2))
		if k.role != sdk.Active || k.written() != before {
			t.Errorf("%s before an update: the kernel's role is %s, %d were written", r, k.role, k.written()-before)
		}
	}
	second.full(service(1, 2))
	if k.role != sdk.Standby {
		t.Errorf("after the update the role is %s", k.role)
	}
	if k.written() != before {
		t.Error("what was there already was written again")
	}
}

// TestAdoptedRole: a process to which no role is said plays the one that the kernel shows.
func TestAdoptedRole(t *testing.T) {
	t.Parallel()
	for _, role := range []sdk.Role{sdk.Standby, sdk.Active, sdk.Draining} {
		k, dir := newKernel(), t.TempDir()
		k.role = role
		begin(t, k, dir).full(service(1, 1))
		if k.role != role {
			t.Errorf("%s was adopted as %s", role, k.role)
		}
	}
}

// TestWithoutLock: a second process plans, writes nothing, and takes over by itself.
func TestWithoutLock(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	first := begin(t, k, dir)
	first.full(service(1, 1))
	first.become(sdk.Active)
	second := begin(t, k, dir)
	before := k.written()
	for i, r := range []sdk.Result{second.full(service(1, 1), service(2, 1)), second.set(service(3, 1))} {
		if !r.Planned || len(r.Steps) != 1+i {
			t.Errorf("without the lock: Planned %t, %q", r.Planned, r.Steps)
		}
	}
	second.become(sdk.Draining)
	if k.written() != before || k.role != sdk.Active {
		t.Error("it wrote without the lock")
	}
	if r := second.Report(); r.Lock != sdk.LockAwaited || r.Served != 0 {
		t.Errorf("without the lock it reports %+v", r)
	}
	k.expect(t, service(1, 1))
	second.become(sdk.Active)
	k.do(func() {
		k.refuse = func(n sdk.Name) error { return map[bool]error{n.Service == "web-003": errors.New("no")}[true] }
	})
	first.become(sdk.Yielded)
	eventually.True(t, "it takes over", func() bool { return second.Report().Served == 2 })
	k.expect(t, service(1, 1), service(2, 1))
	if r := second.Report(); r.Lock != sdk.LockHeld || len(r.Unserved) != 1 || r.Unserved[0].Name != service(3, 1).Name {
		t.Errorf("it reports %+v", r)
	}
	if r := first.full(service(9, 1)); !r.Planned {
		t.Error("one that has yielded wrote")
	}
}

// TestRejectedWhilePlanned: a Service that was only planned, and is refused when it is
// written, keeps what the process before served it by.
func TestRejectedWhilePlanned(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	first := begin(t, k, dir)
	first.full(service(1, 1), service(2, 1))
	second := begin(t, k, dir)
	second.full(service(1, 2), service(2, 2))
	k.do(func() {
		k.reject = func(n sdk.Name) error { return map[bool]error{n.Service == "web-001": errors.New("no")}[true] }
	})
	first.become(sdk.Yielded)
	eventually.True(t, "it takes over", func() bool { return second.Report().Served == 1 })
	k.expect(t, service(1, 1), service(2, 2))
}

// TestStandsDown: what another process has cleaned up stays so, until the host says by a
// role that this one is to serve.
func TestStandsDown(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	l := begin(t, k, dir)
	l.full(service(1, 1))
	l.become(sdk.Active)
	other := New(inMemory(k), dir)
	if gone, err := other.Cleanup(t.Context(), sdk.Leftovers{DryRun: true}); err != nil || len(gone) != 1 || l.cleaned().Left() {
		t.Fatal("a dry run:", gone, err)
	}
	if _, err := other.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "it stands down", func() bool { return l.Report().Lock == sdk.LockReleased })
	k.expect(t)
	if r := l.set(service(2, 1)); !r.Planned {
		t.Error("it wrote, though another process had cleaned up")
	}
	l.become(sdk.Active)
	k.expect(t, service(1, 1), service(2, 1))
}

// TestWithoutItsHost: a process whose host is gone leaves the kernel to another program as soon as that one changes what it
// wrote, and in any case after a minute. It serves again in the next session.
func TestWithoutItsHost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gone  time.Duration
		flush bool
	}{"another program writes": {time.Nanosecond, true}, "for a minute": {hostTimeout, false}} {
		k, dir := newKernel(), t.TempDir()
		var gone atomic.Int64
		mode := inMemory(k)
		l := &life{process: &process{New(mode, dir), k}, t: t}
		t.Cleanup(func() { _ = l.Close() })
		configure := func() {
			gone.Store(0)
			if _, err := l.Configure(t.Context(), sdk.Setup{Gone: func() time.Duration { return time.Duration(gone.Load()) }}); err != nil {
				t.Fatal(err)
			}
			l.rev = 0
		}
		configure()
		l.full(service(1, 1))
		l.become(sdk.Active)
		k.flush()
		eventually.True(t, "with its host it repairs", func() bool { return k.differs([]sdk.Service{service(1, 1)}) == nil })
		eventually.True(t, "nothing is lost", func() bool { return l.Report().Lost == "" })
		gone.Store(int64(c.gone))
		if c.flush {
			k.flush()
		}
		eventually.True(t, name+": it releases the lock", func() bool { return l.Report().Lock == sdk.LockReleased })
		if has := k.differs(nil) != nil; has == c.flush {
			t.Errorf("%s: the kernel has what the process wrote: %t", name, has)
		}
		if lock, err := l.ledger.TryLock(l.name()); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
		configure()
		if r := l.full(service(1, 2)); r.Planned {
			t.Errorf("%s: in the next session it only plans", name)
		}
		k.expect(t, service(1, 2))
	}
}

// TestCleanup: after its own Cleanup a process begins with a Full.
func TestCleanup(t *testing.T) {
	t.Parallel()
	k := newKernel()
	l := begin(t, k, t.TempDir())
	l.full(service(1, 1))
	if _, err := l.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * probeEvery)
	k.expect(t)
	if _, err := l.Sync(t.Context(), sdk.Update{From: 1, To: 2}); !errors.Is(err, sdk.ErrResync) {
		t.Error("an update after Cleanup:", err)
	}
	l.full(service(1, 1))
	k.expect(t, service(1, 1))
}

// TestFlows: connections are counted while draining, and only if they may be its own.
func TestFlows(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	l := begin(t, k, dir)
	l.full(service(1, 1))
	l.become(sdk.Draining)
	time.Sleep(2 * probeEvery)
	if n := l.Report().Flows; n != 0 {
		t.Errorf("one that never was Active has %d connections", n)
	}
	l.become(sdk.Active)
	l.become(sdk.Draining)
	if l.Report().Flows == 0 {
		t.Error("before they were counted there are none")
	}
	eventually.True(t, "they are counted", func() bool { return l.Report().Flows == 4 }) // two in each family
	l.become(sdk.Standby)
	if n := l.Report().Flows; n != 0 {
		t.Errorf("in Standby there are %d", n)
	}
}

// TestUnlocked: where nothing outlives the process there is no lock, and two do not wait for
// one another.
func TestUnlocked(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	mode := inMemory(k)
	open := mode.Open
	mode.Open = func(ctx context.Context, setup sdk.Setup, env Env) (Session[*sdk.Service], error) {
		s, err := open(ctx, setup, env)
		s.Unlocked = true
		return s, err
	}
	first, second := beginMode(t, k, mode, dir), beginMode(t, k, mode, dir)
	first.full(service(1, 1))
	if r := second.full(service(2, 1)); r.Planned {
		t.Error("the second only planned")
	}
	second.become(sdk.Yielded)
	if r := second.set(service(3, 1)); !r.Planned {
		t.Error("one that has yielded wrote")
	}
	k.expect(t, service(2, 1))
	second.become(sdk.Active)
	k.expect(t, service(2, 1), service(3, 1))
	if r := second.Report(); r.Lock != sdk.LockUnused {
		t.Errorf("its lock is %s", r.Lock)
	}
}
