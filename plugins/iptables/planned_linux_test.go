// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// What was planned while another process was the writer is written when that one is gone,
// without another Sync. A Service that the kernel does not take then keeps what served it,
// and is named by the report until an update names it.
func TestKernelNamesWhatFailedBetweenCalls(t *testing.T) {
	onKernel(t, func(k kernel) {
		s := several(20)
		first := k.start()
		k.sync(first, s.Update(1))
		k.role(first, sdk.Active)

		const text = "--to-destination 10.180.7.7:8080"
		moved := several(20)
		for _, i := range []int{5, 6} {
			moved.Services[i].Cluster[0].Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 180, 7, byte(i + 2)}), 8080)
		}
		second := k.start()
		result, err := second.Sync(k.Context(), moved.Update(1))
		if err != nil || !result.Planned || len(result.Failed) > 0 {
			k.Fatalf("beside the writer: %+v, %v", result, err)
		}
		k.want(s, sdk.Active)
		if r := second.Report(); r.Lock != sdk.LockAwaited || r.Holder.PID == 0 || r.Served != 0 {
			k.Errorf("beside the writer it reports %+v", r)
		}

		undo := k.instead(strings.ReplaceAll(refusing, "TEXT", text))
		first.die()
		k.eventually("the second writes", func() bool { return second.Report().Served == 1 })
		r := second.Report()
		if r.Lock != sdk.LockHeld || len(r.Unserved) != 1 || r.Unserved[0].Name != moved.Services[5].Name || !strings.Contains(r.Unserved[0].Err.Error(), text) {
			k.Errorf("once it is the writer it reports %+v", r)
		}
		but := moved
		but.Services = slices.Clone(moved.Services)
		but.Services[5] = s.Services[5]
		k.want(but, sdk.Active)

		undo()
		k.sync(second, sdk.Update{From: 1, To: 2, Set: moved.Services[5:6]})
		k.want(moved, sdk.Active)
		if r := second.Report(); r.Served != 2 || len(r.Unserved) > 0 {
			k.Errorf("after another update it reports %+v", r)
		}
	})
}

// A process in Standby while another served removes nothing when that one
// dies: the role is what the kernel shows, until a host says another.
func TestKernelStandbyBesideTheWriter(t *testing.T) {
	onKernel(t, func(k kernel) {
		s, more := several(3), several(4)
		first := k.start()
		k.sync(first, s.Update(1))
		k.role(first, sdk.Active)
		second := k.start()
		k.role(second, sdk.Standby)
		if result, err := second.Sync(k.Context(), more.Update(1)); err != nil || !result.Planned {
			k.Fatalf("beside the writer: %+v, %v", result, err)
		}
		first.die()
		k.eventually("the second writes", func() bool { return second.Report().Served == 1 })
		k.want(more, sdk.Active)
		k.role(second, sdk.Standby)
		k.want(more, sdk.Standby)
	})
}

// A process that cleans up beside the writer does not write again what it had planned.
func TestKernelCleanupForgetsThePlan(t *testing.T) {
	onKernel(t, func(k kernel) {
		s := several(3)
		first := k.start()
		k.sync(first, s.Update(1))
		k.role(first, sdk.Active)
		second := k.start()
		if result, err := second.Sync(k.Context(), s.Update(1)); err != nil || !result.Planned {
			k.Fatalf("beside the writer: %+v, %v", result, err)
		}
		if _, err := second.Cleanup(k.Context(), sdk.Leftovers{}); err != nil {
			k.Fatal(err)
		}
		k.eventually("the writer stands down", func() bool { return first.Report().Lock == sdk.LockReleased })
		time.Sleep(1500 * time.Millisecond) // more than one try
		for id := range k.tables(sdk.IPv4) {
			if isOurs(id) {
				k.Errorf("after a cleanup there is %s", id)
			}
		}
	})
}
