// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"slices"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/swap"
)

var (
	began       = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	toUserspace = swap.Plan{From: "iptables", To: "userspace", Why: "pointsman mode swap", Drain: time.Minute}
)

// TestBegins decides with which mode a host begins, and to which it goes.
func TestBegins(t *testing.T) {
	available := func(mode string) bool { return mode != "gone" }
	asked := Saved{Serving: "userspace", Asked: "userspace", File: "iptables"}
	for _, c := range []struct {
		name           string
		was            Saved
		file           string
		begins, wanted string
	}{
		{"nothing is known", Saved{}, "iptables", "iptables", "iptables"},
		{"as before", Saved{Serving: "iptables"}, "iptables", "iptables", "iptables"},
		{"the file changed while no host ran", Saved{Serving: "iptables"}, "userspace", "iptables", "userspace"},
		{"another was asked for", asked, "iptables", "userspace", "userspace"},
		{"and then the file changed", asked, "ipvs", "userspace", "ipvs"},
		{"what served is not there any more", Saved{Serving: "gone"}, "iptables", "iptables", "iptables"},
		{"a change had not switched traffic", Saved{Serving: "iptables", Swap: &swap.Saved{Stage: "staging", Plan: toUserspace}}, "userspace", "iptables", "userspace"},
		{"a change had passed its canary", Saved{Serving: "iptables", Swap: &swap.Saved{Stage: "draining", Plan: toUserspace}}, "userspace", "userspace", "userspace"},
	} {
		i := Begin(c.was, c.file)
		if begins, wanted := i.Begins(available).Mode, i.Wanted(); begins != c.begins || wanted != c.wanted {
			t.Errorf("%s: begins with %s and goes to %s, want %s and %s", c.name, begins, wanted, c.begins, c.wanted)
		}
	}
}

// TestAskedHolds until the file changes, for good.
func TestAskedHolds(t *testing.T) {
	i := Begin(Saved{Serving: "iptables"}, "iptables").Ask("userspace")
	if i.Wanted() != "userspace" {
		t.Errorf("userspace was asked for, and %s is wanted", i.Wanted())
	}
	if next := Begin(i.Saved, "iptables"); next.Wanted() != "userspace" {
		t.Errorf("the next host wants %s", next.Wanted())
	}
	if next := Begin(Begin(i.Saved, "ipvs").Saved, "iptables"); next.Wanted() != "iptables" {
		t.Errorf("the file changed there and back over two hosts, and %s is wanted", next.Wanted())
	}
	if i = i.FileSays("ipvs").FileSays("iptables"); i.Wanted() != "iptables" {
		t.Errorf("the file changed there and back, and %s is wanted", i.Wanted())
	}
	if i = i.Ask("userspace").Ask("iptables"); i.Asked != "" || i.File != "" {
		t.Errorf("the file's mode was asked for, and noted: %+v", i.Saved)
	}
}

// TestNext decides what to begin, by what the host sees.
func TestNext(t *testing.T) {
	beginning := Begin(Saved{Serving: "iptables"}, "userspace")
	begun := Begin(Saved{Serving: "iptables"}, "iptables")
	begun.beginning = false
	left := begun
	left.Left = []string{"iptables", "gone", "ipvs"}
	undone := begun.Ended(swap.Outcome{Plan: swap.Plan{From: "iptables", To: "userspace", FromDown: true}, At: began, Err: "no luck", Stays: "iptables"}, "iptables", "", began)
	undone.FileMode = "userspace"
	up := View{Mode: "iptables", Synced: true, Serves: true}
	during := func(v View, stage swap.Stage, p swap.Plan, undo string) View {
		v.Swap = swap.Machine{Stage: stage, Plan: p, Undo: undo}
		return v
	}
	back := swap.Plan{From: "userspace", To: "iptables"}
	for name, c := range map[string]struct {
		i    Intent
		v    View
		at   time.Duration
		want Action
	}{
		"the first dataplane is still to come":      {beginning, View{Mode: "iptables", Coming: true}, 0, Action{}},
		"the first dataplane is up":                 {beginning, up, 0, Action{Kind: Change, Mode: "userspace"}},
		"the first dataplane does not come up":      {beginning, View{Mode: "iptables"}, 0, Action{Kind: Change, Mode: "userspace"}},
		"another was asked for in the meantime":     {beginning.Ask("iptables"), up, 0, Action{}},
		"the wanted mode serves":                    {begun, up, 0, Action{}},
		"the file changes":                          {begun.FileSays("ipvs"), up, 0, Action{Kind: Change, Mode: "ipvs"}},
		"the file changes, and a swap goes on":      {begun.FileSays("ipvs"), during(up, swap.Proving, toUserspace, ""), 0, Action{}},
		"the file goes back to the one that drains": {begun.FileSays("iptables"), during(View{Mode: "userspace", Synced: true, Serves: true}, swap.Draining, toUserspace, ""), 0, Action{Kind: Change, Mode: "iptables"}},
		"the file changes, and a swap stages":       {begun.FileSays("ipvs"), during(up, swap.Staging, toUserspace, ""), 0, Action{Kind: Undo, Mode: "ipvs"}},
		"another was asked for, and a swap stages":  {begun.AskNext("ipvs", true), during(up, swap.Holding, toUserspace, ""), 0, Action{Kind: Undo, Mode: "ipvs"}},
		"the same was asked for, and a swap stages": {begun.AskNext("userspace", true), during(up, swap.Staging, toUserspace, ""), 0, Action{}},
		"another was asked for during a swap":       {begun.AskNext("ipvs", true), up, 0, Action{Kind: Change, Mode: "ipvs", Force: true}},
		"it drains because it failed":               {begun.FileSays("userspace"), during(up, swap.Draining, back, "no luck"), 0, Action{}},
		"it is being cleared away":                  {begun.FileSays("userspace"), during(up, swap.Clearing, back, ""), 0, Action{}},
		"rules are left":                            {left, up, 0, Action{Kind: CleanUp, Mode: "ipvs"}},
		"rules are left, and nothing serves":        {left, View{Mode: "iptables", Synced: true}, 0, Action{}},
		"rules are left, and a swap goes on":        {left, during(up, swap.Draining, back, ""), 0, Action{}},
		"rules are left, and another is wanted":     {left.FileSays("ipvs"), up, 0, Action{Kind: Change, Mode: "ipvs"}},
		"an undone change is tried again":           {undone, View{Mode: "iptables"}, retryFirst, Action{Kind: Change, Mode: "userspace"}},
		"an undone change, not yet":                 {undone, View{Mode: "iptables"}, retryFirst - 1, Action{}},
		"an undone change that is not wanted":       {undone.FileSays("iptables"), View{Mode: "iptables"}, retryFirst, Action{}},
	} {
		c.v.Available = make(map[string]bool)
		for _, mode := range c.i.Candidates() {
			c.v.Available[mode] = mode != "gone"
		}
		if _, got := c.i.Next(c.v, began.Add(c.at)); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestChangeIsBegunOnce: what has begun is not due any more, what could not begin is.
func TestChangeIsBegunOnce(t *testing.T) {
	up := View{Mode: "iptables", Synced: true, Serves: true}
	i := Begin(Saved{Serving: "iptables"}, "iptables").FileSays("userspace")
	i, first := i.Next(up, began)
	i, second := i.Next(up, began) // it was refused
	i, third := i.Begun("ipvs").Begun("userspace").Next(up, began)
	if want := (Action{Kind: Change, Mode: "userspace"}); first != want || second != want || third != (Action{}) {
		t.Errorf("%+v, %+v, and once it has begun %+v", first, second, third)
	}
	if i.Wanted() != "userspace" {
		t.Errorf("and %s is wanted", i.Wanted())
	}
}

// TestRetry comes later each time, as long as the change is undone because nothing serves.
func TestRetry(t *testing.T) {
	down := swap.Outcome{Plan: swap.Plan{From: "b", To: "a", FromDown: true}, At: began, Err: "no luck", Stays: "b"}
	i, now := Begin(Saved{Serving: "b"}, "a"), began
	var waits []time.Duration
	for range 10 {
		i = i.Ended(down, "b", "", now)
		waits = append(waits, i.Retry().At.Sub(now))
		now = i.Retry().At
		var act Action
		if i, act = i.Next(View{Mode: "b"}, now); act != (Action{Kind: Change, Mode: "a"}) {
			t.Fatalf("after %s: %+v", waits, act)
		}
		i = i.Begun("a")
	}
	if waits[0] != retryFirst || waits[1] != 2*retryFirst || waits[9] != retryMost {
		t.Errorf("it is tried again after %s", waits)
	}
	for name, o := range map[string]swap.Outcome{
		"it is made":      {Plan: down.Plan, At: began, Stays: "a"},
		"it was reset":    {Plan: down.Plan, At: began, Err: ByReset, Stays: "b"},
		"what came stays": {Plan: down.Plan, At: began, Err: "no luck", Stays: "a"},
		"what was serves": {Plan: swap.Plan{From: "b", To: "a"}, At: began, Err: "no luck", Stays: "b"},
	} {
		if r := i.Ended(o, o.Stays, "", now).Retry(); r.To != "" {
			t.Errorf("%s, and %s is tried again", name, r.To)
		}
	}
	busy := swap.Outcome{Plan: swap.Plan{From: "b", To: "a"}, At: began, Err: "no time", Stays: "b", Busy: true}
	i, waits = i.Ended(swap.Outcome{Plan: down.Plan, Stays: "a"}, "a", "", now), nil
	for i = i.Ended(busy, "b", "", now); i.Retry().To != ""; i = i.Ended(busy, "b", "", now) {
		waits = append(waits, i.Retry().At.Sub(now))
	}
	if len(waits) != busyTries || waits[0] != retryBusy || waits[busyTries-1] != retryBusy<<(busyTries-1) {
		t.Errorf("where the machine is busy, and what was serves, it is tried again after %s", waits)
	}
	i = i.Ended(swap.Outcome{Plan: busy.Plan, Stays: "a"}, "a", "", now).Ended(busy, "b", "", now)
	i, _ = i.Next(View{Mode: "b", Swap: swap.Machine{Stage: swap.Staging, Plan: busy.Plan}}, i.Retry().At)
	if _, act := i.Ended(busy, "b", "", now).Next(View{Mode: "b"}, now); act != (Action{}) {
		t.Errorf("where the same was asked for and undone at the time of a retry, the next comes at once: %+v", act)
	}
	same := swap.Outcome{Plan: swap.Plan{From: "b", To: "b", Same: true}, At: began, Err: "no time", Stays: "b", Busy: true}
	if r := Begin(Saved{Serving: "b"}, "b").Ended(same, "b", "", now).Retry(); r.To != "" {
		t.Errorf("another binary of the mode that serves is tried again: %+v", r)
	}
	if before, after := i.Retry(), i.Ended(same, "b", "", now).Retry(); before != after || after.To != "a" {
		t.Errorf("with another binary the change that waited, %+v, became %+v", before, after)
	}
	if r := i.Ask("b").Retry(); r.To != "" {
		t.Errorf("a change that is not wanted any more is to be tried again: %+v", r)
	}
	other := down
	other.Plan.To = "c"
	if r := i.Ask("c").Ended(other, "b", "", now).Retry(); r.To != "c" || !r.At.Equal(now.Add(retryFirst)) {
		t.Errorf("a change to another mode is tried again: %+v", r)
	}
}

// TestLeft are the modes that ends of changes left rules of, until they are cleaned up or
// serve.
func TestLeft(t *testing.T) {
	i := Begin(Saved{Serving: "b"}, "a").Record(swap.Machine{Stage: swap.Proving, Plan: swap.Plan{From: "b", To: "a"}})
	i = i.Ended(swap.Outcome{Plan: swap.Plan{From: "b", To: "a", FromDown: true}, At: began, Err: "no luck", Stays: "b", Remains: "a"}, "b", "", began)
	if !slices.Equal(i.Left, []string{"a"}) || i.Swap != nil || i.Undone.Err == "" {
		t.Errorf("after an undone change that left rules: %+v", i)
	}
	if same := i.Ended(swap.Outcome{Plan: swap.Plan{From: "b", To: "b", Same: true}, At: began, Stays: "b"}, "b", "b", began); !slices.Equal(same.Left, []string{"a"}) || same.Slot != "b" || same.Undone.Err == "" {
		t.Errorf("another binary: %+v", same)
	}
	if made := i.Ended(swap.Outcome{Plan: swap.Plan{From: "b", To: "a"}, At: began, Stays: "a"}, "a", "", began); len(made.Left) != 0 || made.Serving != "a" || made.Undone.Err != "" {
		t.Errorf("the mode serves by now: %+v", made)
	}
	if cleaned := i.Ended(swap.Outcome{Plan: swap.Plan{From: "a", To: "b", Leftover: true}, At: began, Stays: "b"}, "b", "", began); len(cleaned.Left) != 0 {
		t.Errorf("it was cleaned up: %+v", cleaned)
	}
}

// TestEndedDryRun: a dry run is no change of mode that was undone, but what it could not clear away is cleaned up.
func TestEndedDryRun(t *testing.T) {
	now := time.Now()
	i := Begin(Saved{}, "iptables").Ended(swap.Outcome{
		Plan: swap.Plan{From: "iptables", To: "userspace", DryRun: true}, At: now, Err: swap.ByDryRun, Stays: "iptables", Left: "a chain", Remains: "userspace",
	}, "iptables", "", now)
	if i.Undone.Err != "" || i.Retry().To != "" || len(i.Left) != 1 || i.Left[0] != "userspace" || i.Serving != "iptables" {
		t.Errorf("after a dry run %+v", i)
	}
}
