// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
	"github.com/pointsman/pointsman/test/eventually"
)

// TestRoleBeforeFirstUpdate: before the first update a process writes nothing, in any role and
// however often the monitor checks, because the desired state is unknown.
func TestRoleBeforeFirstUpdate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		k, dir := newKernel(), t.TempDir()
		first := start(t, k, dir)
		first.full(service(1, 2))
		first.become(sdk.Active)
		_ = first.Close()
		before := k.written()
		second := start(t, k, dir)
		for _, r := range []sdk.Role{sdk.Active, sdk.Draining, sdk.Standby, sdk.Yielded, sdk.Active, sdk.Standby} {
			second.become(r)
			eventually.Pass(2 * probeEvery)
			k.expect(t, service(1, 2))
			if k.role != sdk.Active || k.written() != before {
				t.Errorf("%s before an update: the kernel's role is %s, and %d objects were written", r, k.role, k.written()-before)
			}
		}
		second.full(service(1, 2))
		if k.role != sdk.Standby {
			t.Errorf("after the update the role is %s", k.role)
		}
		if k.written() != before {
			t.Error("objects that existed were written again")
		}
	})
}

// TestShown: a report has the role that the kernel showed when the session began, and later the
// role that was set.
func TestShown(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	first := start(t, k, dir)
	expect := func(p *process, when string, want sdk.Role) {
		t.Helper()
		if shown := p.Report().Shown; shown != want {
			t.Errorf("%s: %s is shown, want %s", when, shown, want)
		}
	}
	read := func(p *process, when string, want sdk.Role) {
		t.Helper()
		eventually.True(t, when, func() bool { return p.Report().Shown == want })
	}
	expect(first, "before the kernel was read", 0)
	read(first, "an empty kernel", sdk.Absent)
	first.full(service(1, 1))
	expect(first, "after an update", sdk.Standby)
	for _, role := range []sdk.Role{sdk.Active, sdk.Draining, sdk.Standby, sdk.Active} {
		first.become(role)
		expect(first, "after a role", role)
	}
	second, before := start(t, k, dir), k.written()
	read(second, "beside the writer", sdk.Active)
	if second.holdsLock() || k.written() != before {
		t.Error("reading the role took the lock or wrote")
	}
	first.become(sdk.Yielded)
	expect(first, "after Yielded", 0)
	second.become(sdk.Draining)
	expect(second, "a role before an update, which writes nothing", sdk.Active)
	second.full(service(1, 1))
	expect(second, "a role with an update", sdk.Draining)
	if _, err := second.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
		t.Fatal(err)
	}
	read(second, "after Cleanup", sdk.Absent)
}

// expectBusy fails unless err is a Busy of the mode.
func expectBusy(t *testing.T, what string, err error) {
	t.Helper()
	var busy *sdk.Busy
	if !errors.As(err, &busy) || busy.Mode != "memory" {
		t.Errorf("%s: %v", what, err)
	}
}

// TestWithoutLock: while another process holds the lock, every call but Yielded returns Busy and
// changes nothing. Once the lock is free, the next call adopts and writes, also in a process that has yielded.
func TestWithoutLock(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	first := start(t, k, dir)
	first.full(service(1, 1))
	first.become(sdk.Active)
	second := start(t, k, dir)
	before := k.written()
	full := sdk.Update{To: 1, Full: true, Node: &sdk.Node{}, Set: []sdk.Service{service(2, 1)}}
	_, err := second.Sync(t.Context(), full)
	expectBusy(t, "Sync", err)
	for _, role := range []sdk.Role{sdk.Standby, sdk.Active, sdk.Draining} {
		expectBusy(t, role.String(), second.SetRole(t.Context(), role))
	}
	_, err = second.Cleanup(t.Context(), sdk.Leftovers{})
	expectBusy(t, "Cleanup", err)
	if _, err := second.Cleanup(t.Context(), sdk.Leftovers{DryRun: true}); err != nil {
		t.Error("a dry run needs no lock:", err)
	}
	if k.written() != before || k.role != sdk.Active {
		t.Error("it wrote without the lock")
	}
	k.expect(t, service(1, 1))
	first.become(sdk.Yielded)
	_, err = first.Sync(t.Context(), full)
	expectBusy(t, "Sync after Yielded", err)
	if _, err := second.Sync(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	k.expect(t, service(2, 1))
	expectBusy(t, "a role after Yielded, beside a writer", first.SetRole(t.Context(), sdk.Active))
	second.become(sdk.Yielded)
	first.become(sdk.Active)
	k.expect(t, service(1, 1)) // the state that this process got from its host
	first.set(service(2, 1))
	k.expect(t, service(1, 1), service(2, 1))
}

// TestWithoutHost: a process whose host is gone releases the lock as soon as another program changes
// what it wrote, and in any case after a minute. It serves again in the next session.
func TestWithoutHost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gone  time.Duration
		flush bool
	}{"another program writes": {time.Nanosecond, true}, "for a minute": {hostTimeout, false}} {
		k := newKernel()
		p := start(t, k, t.TempDir())
		var gone atomic.Int64
		configure := func() {
			gone.Store(0)
			p.configure(sdk.Setup{Gone: func() time.Duration { return time.Duration(gone.Load()) }})
		}
		configure()
		p.full(service(1, 1))
		p.become(sdk.Active)
		k.flush()
		eventually.True(t, "with its host it repairs", func() bool { return k.differs(service(1, 1)) == nil })
		eventually.True(t, "nothing is lost", func() bool { return p.Report().Lost == "" })
		gone.Store(int64(c.gone))
		if c.flush {
			k.flush()
		}
		eventually.True(t, name+": it releases the lock", func() bool { return !p.holdsLock() })
		if has := k.differs() != nil; has == c.flush {
			t.Errorf("%s: the kernel has what the process wrote: %t", name, has)
		}
		if lock, err := p.ledger.TryLock(p.name()); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
		configure()
		p.full(service(1, 2))
		k.expect(t, service(1, 2))
	}
}

// TestCleanup: after Cleanup the monitor writes nothing, and the next update must be a Full.
func TestCleanup(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		k := newKernel()
		p := start(t, k, t.TempDir())
		p.full(service(1, 1))
		if _, err := p.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
			t.Fatal(err)
		}
		eventually.Pass(2 * probeEvery)
		k.expect(t)
		if _, err := p.Sync(t.Context(), sdk.Update{From: 1, To: 2}); !errors.Is(err, sdk.ErrResync) {
			t.Error("an update after Cleanup:", err)
		}
		p.full(service(1, 1))
		k.expect(t, service(1, 1))
	})
}

// TestFlows: connections are counted while draining, if they may belong to the process.
func TestFlows(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		k, dir := newKernel(), t.TempDir()
		p := start(t, k, dir)
		p.full(service(1, 1))
		p.become(sdk.Draining)
		eventually.Pass(2 * probeEvery)
		if n := p.Report().Flows; n != 0 {
			t.Errorf("a process that was never Active has %d connections", n)
		}
		p.become(sdk.Active)
		p.become(sdk.Draining)
		if p.Report().Flows == 0 {
			t.Error("no connections are reported before the first count")
		}
		eventually.True(t, "they are counted", func() bool { return p.Report().Flows == 4 }) // two in each family
		p.become(sdk.Standby)
		if n := p.Report().Flows; n != 0 {
			t.Errorf("in Standby there are %d", n)
		}
	})
}

func unlocked(s *Session[*sdk.Service]) { s.Unlocked = true }

// TestNoLedger: without a ledger only an Unlocked mode begins a session. Both clean up.
func TestNoLedger(t *testing.T) {
	t.Parallel()
	const nowhere = "/proc/sys/nowhere" // not even root can create a file there
	for needsLedger, mode := range map[bool]Mode[*sdk.Service]{true: inMemory(newKernel()), false: opening(newKernel(), unlocked)} {
		d := New(mode, nowhere)
		if _, err := d.Configure(t.Context(), sdk.Setup{}); (err != nil) != needsLedger {
			t.Errorf("needs a ledger %t: Configure returned %v", needsLedger, err)
		}
		if _, err := d.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
			t.Errorf("needs a ledger %t: Cleanup returned %v", needsLedger, err)
		}
		_ = d.Close()
	}
}

// A held is a family in memory that counts how often it lost the lock.
type held struct {
	*memory
	lost int
}

func (h *held) Hold(lock *ledger.Lock) {
	if lock == nil {
		h.lost++
	}
	h.memory.Hold(lock)
}

// TestFamilyStays: a family of the next session keeps the lock. The others lose it.
func TestFamilyStays(t *testing.T) {
	t.Parallel()
	k := newKernel()
	stays, leaves := &held{memory: newMemory(sdk.IPv4, k)}, &held{memory: newMemory(sdk.IPv6, k)}
	families := []Family[*sdk.Service]{stays, leaves}
	p := startMode(t, opening(k, func(s *Session[*sdk.Service]) { s.Families, s.Unlocked = families, true }), t.TempDir())
	p.full(service(1, 1))
	families = families[:1]
	p.configure(sdk.Setup{})
	if stays.lost != 0 || leaves.lost != 1 {
		t.Errorf("the family that stays lost the lock %d times, the other one %d times", stays.lost, leaves.lost)
	}
	p.full(service(2, 1))
	k.expect(t, service(2, 1))
}
