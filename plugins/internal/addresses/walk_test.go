// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// killed is what a process that is killed in the middle panics with.
type killed struct{}

// A walk is a machine whose processes are killed anywhere, and whose addresses other programs
// change between what they do.
type walk struct {
	*machine
	*rand.Rand
	process *Holding
	wanted  map[netip.Addr]bool
	foreign map[netip.Addr]uint64 // what other programs added, and when
}

// TestWalk: whatever changes, whichever program adds and removes, and wherever a process is killed, what
// others added is never removed, and in the end exactly the desired addresses are there.
func TestWalk(t *testing.T) {
	for seed := range uint64(60) {
		w := &walk{
			machine: newMachine(t), Rand: rand.New(rand.NewPCG(seed, 1)),
			wanted: make(map[netip.Addr]bool), foreign: make(map[netip.Addr]uint64),
		}
		for range 25 {
			w.others()
			w.next(w.IntN(12))
			w.intact()
		}
		w.settle()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// others add and remove some addresses, also ours.
func (w *walk) others() {
	addr := vip(w.IntN(6))
	switch w.IntN(6) {
	case 0:
		if w.Foreign(addr) == nil {
			w.foreign[addr] = w.clock
		}
	case 1:
		_ = w.Remove(Address{Addr: addr})
		delete(w.foreign, addr)
	case 2: // removes ours, and has its own in its place
		_ = w.Remove(Address{Addr: addr})
		_ = w.Foreign(addr)
		w.foreign[addr] = w.clock
	}
}

// next changes what is desired, and has a process bring that about which is killed before its
// nth change, if there are so many.
func (w *walk) next(n int) {
	for addr := range 6 {
		if w.IntN(3) == 0 {
			w.wanted[vip(addr)] = !w.wanted[vip(addr)]
		}
	}
	before := w.process // from which a swap leads to another, sometimes; it goes on where that is killed
	if before == nil || w.IntN(4) == 0 {
		w.process = Open(&w.Fake, w.dir)
	} else {
		before = nil
	}
	w.process.notes.edge = func() {
		if n--; n < 0 {
			panic(killed{})
		}
	}
	defer func() {
		if dead := recover(); dead == (killed{}) {
			_ = w.process.life.Close() // as the system does
			w.process = before
		} else if dead != nil {
			panic(dead)
		}
	}()
	w.reconcile()
	if before == nil {
		return
	}
	before.notes.edge = func() {}
	if _, err := before.Sweep(w.Context(), false); err != nil {
		w.Error(err)
	}
	_ = before.Close()
	for addr, wanted := range w.wanted {
		if _, there := w.Fake.Has()[addr]; wanted && !there {
			w.Errorf("the process that a swap led away from removed %s", addr)
		}
	}
}

// reconcile is what a dataplane does at each update, and when it looks for what was removed.
func (w *walk) reconcile() {
	w.Helper()
	if _, err := w.process.Lost(netip.Addr.IsValid); err != nil {
		w.Fatal(err)
	}
	var want, not []netip.Addr
	for addr, wanted := range w.wanted {
		if wanted {
			want = append(want, addr)
		} else {
			not = append(not, addr)
		}
	}
	slices.SortFunc(want, netip.Addr.Compare)
	slices.SortFunc(not, netip.Addr.Compare)
	w.must(w.process, want...)
	w.release(w.process, not...)
	if _, err := w.process.Strays(w.Context(), netip.Addr.IsValid); err != nil {
		w.Fatal(err)
	}
}

// intact: what others added is there, as they did.
func (w *walk) intact() {
	w.Helper()
	for addr, when := range w.foreign {
		if got := w.Fake.has[addr]; got.Created != when {
			w.Errorf("another program added %s at %d, and there is %+v", addr, when, got)
		}
	}
}

// settle: a process that is not killed comes to what is desired, and a cleanup to what others
// have added.
func (w *walk) settle() {
	w.Helper()
	w.next(1 << 20)
	w.intact()
	want := maps.Clone(w.foreign)
	for addr, wanted := range w.wanted {
		if wanted {
			want[addr] = 0
		}
	}
	w.machine.has(slices.Collect(maps.Keys(want))...)
	_ = w.process.Close()
	if _, err := Open(&w.Fake, w.dir).Sweep(w.Context(), false); err != nil {
		w.Error(err)
	}
	w.machine.has(slices.Collect(maps.Keys(w.foreign))...)
	w.intact()
	w.empty()
}
