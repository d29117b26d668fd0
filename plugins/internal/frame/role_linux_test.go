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
// before it knows what is desired, in whichever role, however often the monitor looks.
func TestRoleBeforeFirstUpdate(t *testing.T) { inBubble(t, roleBeforeFirstUpdate) }

func roleBeforeFirstUpdate(t *testing.T) {
	k, dir := newKernel(), t.TempDir()
	first := begin(t, k, dir)
	first.full(service(1, 2))
	first.become(sdk.Active)
	_ = first.Close()
	before := k.written()
	second := begin(t, k, dir)
	for _, r := range []sdk.Role{sdk.Active, sdk.Draining, sdk.Standby, sdk.Yielded, sdk.Active, sdk.Standby} {
		second.become(r)
		eventually.Pass(2 * probeEvery)
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

// TestShown checks that a report has the role that the kernel showed when the session began, and later the role that
// was set.
func TestShown(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	first := begin(t, k, dir)
	expect := func(l *life, when string, want sdk.Role) {
		t.Helper()
		if shown := l.Report().Shown; shown != want {
			t.Errorf("%s: %s is shown, not %s", when, shown, want)
		}
	}
	read := func(l *life, when string, want sdk.Role) {
		t.Helper()
		eventually.True(t, when, func() bool { return l.Report().Shown == want })
	}
	expect(first, "before anything was read", 0)
	read(first, "an empty kernel", sdk.Absent)
	first.full(service(1, 1))
	expect(first, "after an update", sdk.Standby)
	for _, role := range []sdk.Role{sdk.Active, sdk.Draining, sdk.Standby, sdk.Active} {
		first.become(role)
		expect(first, "after a role", role)
	}
	second, before := begin(t, k, dir), k.written()
	read(second, "beside the writer", sdk.Active)
	if second.holdsLock() || k.written() != before {
		t.Error("to read the role it took the lock, or wrote")
	}
	first.become(sdk.Yielded)
	expect(first, "one that has yielded", 0)
	second.become(sdk.Draining)
	expect(second, "a role before an update, which writes nothing", sdk.Active)
	second.full(service(1, 1))
	expect(second, "a role with an update", sdk.Draining)
	if _, err := second.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
		t.Fatal(err)
	}
	read(second, "after a cleanup", sdk.Absent)
}

// expectBusy expects that a call changed nothing, because another process holds the lock or this one has yielded.
func expectBusy(t *testing.T, what string, err error) {
	t.Helper()
	var busy *sdk.Busy
	if !errors.As(err, &busy) || busy.Mode != "memory" {
		t.Errorf("%s: %v", what, err)
	}
}

// TestWithoutLock: while another process holds the lock no call but Yielded changes anything, and each says so; then
// the next call adopts and writes.
func TestWithoutLock(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	first := begin(t, k, dir)
	first.full(service(1, 1))
	first.become(sdk.Active)
	second := begin(t, k, dir)
	before := k.written()
	full := sdk.Update{To: 1, Full: true, Node: &sdk.Node{}, Set: []sdk.Service{service(2, 1)}}
	_, err := second.Sync(t.Context(), full)
	expectBusy(t, "an update", err)
	for _, role := range []sdk.Role{sdk.Standby, sdk.Active, sdk.Draining} {
		expectBusy(t, role.String(), second.SetRole(t.Context(), role))
	}
	_, err = second.Cleanup(t.Context(), sdk.Leftovers{})
	expectBusy(t, "a cleanup", err)
	if _, err := second.Cleanup(t.Context(), sdk.Leftovers{DryRun: true}); err != nil {
		t.Error("a dry run needs no lock, and says", err)
	}
	if k.written() != before || k.role != sdk.Active {
		t.Error("it wrote without the lock")
	}
	k.expect(t, service(1, 1))
	first.become(sdk.Yielded)
	_, err = first.Sync(t.Context(), full)
	expectBusy(t, "an update to one that has yielded", err)
	if _, err := second.Sync(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	k.expect(t, service(2, 1))
	expectBusy(t, "a role of one that has yielded, beside a writer", first.SetRole(t.Context(), sdk.Active))
}

// TestRefusedAfterARestart: a Service that is refused to a new process keeps what the process before served it by.
func TestRefusedAfterARestart(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(*kernel, func(sdk.Name) error){
		"with others": func(k *kernel, f func(sdk.Name) error) { k.reject = f },
		"alone":       func(k *kernel, f func(sdk.Name) error) { k.refuse = f },
	} {
		k, dir := newKernel(), t.TempDir()
		first := begin(t, k, dir)
		first.full(service(1, 1), service(2, 1))
		_ = first.Close()
		second := begin(t, k, dir)
		k.do(func() {
			refuse(k, func(n sdk.Name) error { return map[bool]error{n.Service == "web-001": errors.New("no")}[true] })
		})
		r := second.full(service(1, 2), service(2, 2))
		if len(r.Failed) != 1 || r.Failed[0].Name != service(1, 1).Name {
			t.Errorf("%s: failed %+v", name, r.Failed)
		}
		k.expect(t, service(1, 1), service(2, 2))
	}
}

// TestYieldedAgain: a process whose lock another one took and released takes part again by a role.
func TestYieldedAgain(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	first, second := begin(t, k, dir), begin(t, k, dir)
	first.full(service(1, 1))
	first.become(sdk.Yielded)
	second.full(service(1, 1), service(2, 1))
	second.become(sdk.Yielded)
	first.become(sdk.Active)
	k.expect(t, service(1, 1)) // what the host has told this process; its cursor goes on from there
	first.set(service(2, 1))
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
		eventually.True(t, name+": it releases the lock", func() bool { return !l.holdsLock() })
		if has := k.differs(nil) != nil; has == c.flush {
			t.Errorf("%s: the kernel has what the process wrote: %t", name, has)
		}
		if lock, err := l.ledger.TryLock(l.name()); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
		configure()
		l.full(service(1, 2))
		k.expect(t, service(1, 2))
	}
}

// TestCleanup: after its own Cleanup a process begins with a Full.
func TestCleanup(t *testing.T) { inBubble(t, cleanup) }

func cleanup(t *testing.T) {
	k := newKernel()
	l := begin(t, k, t.TempDir())
	l.full(service(1, 1))
	if _, err := l.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
		t.Fatal(err)
	}
	eventually.Pass(2 * probeEvery)
	k.expect(t)
	if _, err := l.Sync(t.Context(), sdk.Update{From: 1, To: 2}); !errors.Is(err, sdk.ErrResync) {
		t.Error("an update after Cleanup:", err)
	}
	l.full(service(1, 1))
	k.expect(t, service(1, 1))
}

// TestFlows: connections are counted while draining, and only if they may be its own.
func TestFlows(t *testing.T) { inBubble(t, flows) }

func flows(t *testing.T) {
	k, dir := newKernel(), t.TempDir()
	l := begin(t, k, dir)
	l.full(service(1, 1))
	l.become(sdk.Draining)
	eventually.Pass(2 * probeEvery)
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
	second.full(service(2, 1))
	second.become(sdk.Yielded)
	_, err := second.Sync(t.Context(), sdk.Update{From: 1, To: 2, Set: []sdk.Service{service(3, 1)}})
	expectBusy(t, "one that has yielded", err)
	k.expect(t, service(2, 1))
	second.become(sdk.Active)
	second.set(service(3, 1))
	k.expect(t, service(2, 1), service(3, 1))
}
