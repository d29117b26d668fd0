// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// This file holds the frame to what modes need that carry traffic in the process.

// TestNoLedger: where there is no ledger, only a mode whose work does not outlive the process
// begins a session, and cleans up.
func TestNoLedger(t *testing.T) {
	t.Parallel()
	const nowhere = "/proc/sys/nowhere" // where not even root may make anything
	k := newKernel()
	for _, unlocked := range []bool{true, false} {
		mode := inMemory(k)
		open := mode.Open
		mode.Open = func(ctx context.Context, setup sdk.Setup, env Env) (Session[*sdk.Service], error) {
			s, err := open(ctx, setup, env)
			s.Unlocked = unlocked
			return s, err
		}
		d := New(mode, nowhere)
		if _, err := d.Configure(t.Context(), sdk.Setup{}); (err == nil) != unlocked {
			t.Errorf("unlocked %t: a session begins with %v", unlocked, err)
		}
		if _, err := d.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
			t.Errorf("unlocked %t: %v", unlocked, err)
		}
		_ = d.Close()
	}
}

// A lasting is a family in memory that one session hands to the next.
type lasting struct {
	*memory
	letGo int // how often it was told that this process is the writer no more
}

func (l *lasting) Hold(lock *ledger.Lock) {
	if lock == nil {
		l.letGo++
	}
	l.memory.Hold(lock)
}

// TestFamilyLasts: what is in the next session too lets go of nothing; what is not, does.
func TestFamilyLasts(t *testing.T) {
	t.Parallel()
	k := newKernel()
	stays, leaves := &lasting{memory: newMemory(sdk.IPv4, k)}, &lasting{memory: newMemory(sdk.IPv6, k)}
	families := []Family[*sdk.Service]{stays, leaves}
	mode := inMemory(k)
	mode.Open = func(context.Context, sdk.Setup, Env) (Session[*sdk.Service], error) {
		return Session[*sdk.Service]{Families: families, Unlocked: true}, nil
	}
	l := beginMode(t, k, mode, t.TempDir())
	l.full(service(1, 1))
	families = families[:1]
	l.configure()
	if stays.letGo != 0 || leaves.letGo != 1 {
		t.Errorf("the one that stays let go %d times, the other %d", stays.letGo, leaves.letGo)
	}
	l.full(service(2, 1))
	k.expect(t, service(2, 1))
}

// TestCarries: where the process carries traffic itself, what it works is no sign that a
// call gets on.
func TestCarries(t *testing.T) {
	t.Parallel()
	for _, limits := range [][]sdk.Limit{nil, {sdk.LimitDiesWithProcess}} {
		mode := inMemory(newKernel())
		mode.Description.Limits = limits
		d := New(mode, t.TempDir())
		before := d.Report().Progress
		for worked := used(); used()-worked < 2*effort; {
			// it works: this is time of a processor
		}
		if moved := d.Report().Progress > before; moved == (limits != nil) {
			t.Errorf("with %v, work is progress: %t", limits, moved)
		}
	}
}

// TestStale: flows that lead nowhere once what is due is written are looked for, of all
// Services, while Active.
func TestStale(t *testing.T) {
	t.Parallel()
	k := newKernel()
	w := &watched{memory: newMemory(sdk.IPv4, k), found: make(chan Finding)}
	mode := inMemory(k)
	mode.Open = func(context.Context, sdk.Setup, Env) (Session[*sdk.Service], error) {
		return Session[*sdk.Service]{Families: []Family[*sdk.Service]{w}}, nil
	}
	l := beginMode(t, k, mode, t.TempDir())
	udp := service(1, 1)
	udp.Name.Protocol = sdk.UDP
	l.full(udp, service(2, 1))
	looked := func() (n int) {
		w.found <- Finding{Due: true, Stale: true}
		w.found <- Finding{} // the one before was written
		l.semaphore.held <- struct{}{}
		defer func() { <-l.semaphore.held }()
		for _, services := range w.forgot {
			n += len(services)
		}
		w.forgot = nil
		return n
	}
	if n := looked(); n != 0 {
		t.Errorf("in Standby flows of %d Services were looked for", n)
	}
	l.become(sdk.Active)
	w.forgot = nil
	if n := looked(); n != 1 {
		t.Errorf("flows of %d Services were looked for, and one is of UDP", n)
	}
}
