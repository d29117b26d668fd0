// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/swap"
)

// TestUndone: of another binary the mode is the same, whichever of the two processes stays.
func TestUndone(t *testing.T) {
	o := swap.Outcome{Plan: swap.Plan{From: "userspace", To: "userspace", Same: true}, Stays: "userspace", Err: "no luck"}
	if got, want := undone(o, true), "userspace → userspace, another binary failed, and userspace stays because userspace could not be brought back: no luck"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	o.Undone = true
	if got, want := undone(o, true), "userspace → userspace, another binary, and userspace serves on: no luck"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestFinished makes the one that stays the only one, for this host and the next, and
// reports how the swap ended.
func TestFinished(t *testing.T) {
	plan := swap.Plan{From: "iptables", To: "userspace"}
	down := plan
	down.FromDown = true
	for name, c := range map[string]struct {
		o      swap.Outcome
		serves bool // the one that stays
		reason string
		want   string
	}{
		"made":                      {swap.Outcome{Plan: plan, Stays: "userspace", Took: time.Second}, true, report.SwapDone, "iptables → userspace in 1s"},
		"undone":                    {swap.Outcome{Plan: plan, Stays: "iptables", Err: "no luck"}, true, report.SwapUndone, "iptables → userspace, and iptables serves on: no luck"},
		"undone, and none serves":   {swap.Outcome{Plan: down, Stays: "iptables", Err: "no luck"}, false, report.SwapUndone, "iptables does not serve either: no luck; what the kernel has stays as it is, and nothing updates it; it is tried again in 2s"},
		"could not be undone":       {swap.Outcome{Plan: plan, Stays: "userspace", Err: "no luck"}, true, report.SwapUndone, "iptables → userspace failed, and userspace stays because iptables could not be brought back: no luck"},
		"made, with something left": {swap.Outcome{Plan: plan, Stays: "userspace", Left: "a chain", Remains: "iptables"}, true, report.SwapNote, "not finished: a chain"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFormerHost(t)
			c.o.At = time.Now()
			set := s.next()
			iptables, userspace := set.main, set.newDataplane("userspace", "b")
			set.add(userspace)
			stays, leaves := iptables, userspace
			if c.o.Stays == "userspace" {
				stays, leaves = userspace, iptables
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			leaves.start(ended)
			leaves.process.wait()
			stays.served = c.serves
			stays.process.start(ended)
			stays.process.wait()
			set.prefer("userspace")
			swapHost{set}.Finished(swapSide{stays}, swap.Machine{}, c.o)
			if set.serving() != stays || len(set.all()) != 1 {
				t.Errorf("%s serves, of %d", set.Mode(), len(set.all()))
			}
			if got := set.intent.Intent(); got.Serving != stays.name || got.Slot != stays.slot || got.Swap != nil {
				t.Errorf("noted: %+v", got.Saved)
			}
			if said := strings.Join(eventsOf(set, c.reason), "; "); !strings.Contains(said, c.want) {
				t.Errorf("said %q, want %q", said, c.want)
			}
		})
	}
}

// TestProveUnproved goes on with a swap where no way to the canary can be demanded, and says
// so.
func TestProveUnproved(t *testing.T) {
	set := newFormerHost(t).next() // it knows no address of the node
	if err := (swapHost{set}).Prove(t.Context(), swapSide{set.main}, nil); err != nil {
		t.Error(err)
	}
	if said := eventsOf(set, report.SwapNote); len(said) != 1 || !strings.Contains(said[0], "unproved") {
		t.Errorf("said %q", said)
	}
}

// TestOpenRefusesAnOldPlan: a plan that was made before another dataplane came to serve starts nothing.
func TestOpenRefusesAnOldPlan(t *testing.T) {
	set := newFormerHost(t).next()
	for _, p := range []swap.Plan{{From: "userspace", To: "iptables"}, {From: "iptables", FromSlot: "b", To: "userspace"}} {
		if d, err := (swapHost{set}).Open(t.Context(), p); d != nil || err == nil || len(set.all()) != 1 {
			t.Errorf("%s: opened %v, %v; %d run", p, d, err, len(set.all()))
		}
	}
}

// TestOpenFails: a plugin that does not come up is stopped, and forgotten.
func TestOpenFails(t *testing.T) {
	set := newFormerHost(t).next()
	set.life = t.Context()
	defer set.canary.End()
	d, err := swapHost{set}.Open(t.Context(), swap.Plan{From: "iptables", To: "userspace"})
	if d != nil || err == nil || !strings.Contains(err.Error(), "userspace is ") || len(set.all()) != 1 {
		t.Errorf("opened %v, %v; %d run", d, err, len(set.all()))
	}
}
