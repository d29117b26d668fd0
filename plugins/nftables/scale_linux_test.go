// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// used is how much this process has worked, with the kernel's work for it.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail for this
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestKernelScale writes many Services, changes one, and reads them back. POINTSMAN_SCALE is
// services x endpoints, such as 10000x2; it prints how long things take.
func TestKernelScale(t *testing.T) {
	services, endpoints := 1000, 2
	if _, err := fmt.Sscanf(os.Getenv("POINTSMAN_SCALE"), "%dx%d", &services, &endpoints); err != nil {
		services, endpoints = 1000, 2
	}
	onKernel(t, func(k kernel) {
		all := several(services, endpoints)
		p := k.start()
		took := func(what string, f func()) {
			began, worked := time.Now(), used()
			f()
			k.Logf("%dx%d: %s: %s, of the processor %s", services, endpoints, what, time.Since(began), used()-worked)
		}
		took("first load", func() { k.sync(p, sdk.Update{Full: true, To: 1, Set: all, Node: &sdk.Node{}}) })
		took("active", func() { k.role(p, sdk.Active) })
		var memory runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&memory)
		k.Logf("%dx%d: %d MB in use, with what the test has", services, endpoints, memory.HeapAlloc>>20)
		var each []time.Duration
		for i := range uint64(200) {
			one := all[7]
			one.Cluster = slices.Clone(one.Cluster)
			one.Cluster[0].Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 250, 0, byte(i)}), 8080)
			one.Normalize()
			began := time.Now()
			k.sync(p, sdk.Update{From: i + 1, To: i + 2, Set: []sdk.Service{one}})
			each = append(each, time.Since(began))
		}
		slices.Sort(each)
		k.Logf("%dx%d: one change: p50 %s, p99 %s", services, endpoints, each[100], each[198])
		if want, got := uint32(202), p.families[0].kernel.commits.Load(); got < want {
			k.Errorf("%d batches were written, and there were %d changes", got, want)
		}
		p.die()
		next := k.start()
		took("adopt", func() { k.sync(next, sdk.Update{Full: true, To: 1, Set: all, Node: &sdk.Node{}}) })
	})
}

// TestKernelManyAffinityServices: a thousand Services with affinity go in, are listed and are
// adopted. The thousandth makes no set and no chain, and as many elements in as many batches as
// the second. It prints what one costs among few and among many.
func TestKernelManyAffinityServices(t *testing.T) {
	onKernel(t, func(k kernel) {
		all := several(1001, 3)
		p := k.start()
		k.sync(p, sdk.Update{Full: true, To: 1, Node: &sdk.Node{}})
		k.role(p, sdk.Active)
		var each []time.Duration
		var costs []string
		f := p.families[0]
		for i, s := range all {
			s.Affinity = time.Hour
			elements, batches := f.kernel.total(), f.kernel.commits.Load()
			began := time.Now()
			k.sync(p, sdk.Update{From: uint64(i + 1), To: uint64(i + 2), Set: []sdk.Service{s}})
			each = append(each, time.Since(began))
			costs = append(costs, fmt.Sprintf("%d elements in %d batches, with %d sets and %d chains",
				f.kernel.total()-elements, f.kernel.commits.Load()-batches, len(f.kernel.layout.sets), len(f.kernel.layout.chains)))
		}
		if costs[1] != costs[999] {
			k.Errorf("the second Service makes %s, and the thousandth %s", costs[1], costs[999])
		}
		median := func(some []time.Duration) time.Duration {
			some = slices.Sorted(slices.Values(some))
			return some[len(some)/2]
		}
		k.Logf("a Service with affinity: %s among 50, %s among 1000", median(each[:50]), median(each[950:]))
		k.lists()
		p.die()
		next := k.start()
		for i := range all {
			all[i].Affinity = time.Hour
		}
		k.sync(next, sdk.Update{Full: true, To: 1, Set: all, Node: &sdk.Node{}})
		if n := next.families[0].kernel.commits.Load(); n > 2 {
			k.Errorf("a new process wrote %d batches", n)
		}
	})
}
