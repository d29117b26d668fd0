// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

var toUserspace = Plan{From: "iptables", To: "userspace", Why: "asked for", Drain: 15 * time.Minute}

// TestSwaps tells swaps: events with the time since the one before, and what they
// lead to.
func TestSwaps(t *testing.T) {
	type step struct {
		after time.Duration
		event Event
		want  string // which leaves and which stays, the stage, then the work
	}
	ask := Event{Kind: Ask, Plan: toUserspace}
	passed := func(s Stage) Event { return Event{Kind: Passed, Stage: s} }
	failed := func(s Stage) Event { return Event{Kind: Failed, Stage: s, Why: "no luck"} }
	const second = time.Second
	upTo := func(last Stage) []step {
		steps := []step{{0, ask, "iptables→userspace preflight: launch"}}
		for s := Preflight; s < last; s++ {
			steps = append(steps, step{second, passed(s), fmt.Sprintf("iptables→userspace %s: %s", s+1, words(toUserspace.work(s+1)))})
		}
		return steps
	}
	for name, story := range map[string][]step{
		"goes well": {
			{0, ask, "iptables→userspace preflight: launch"},
			{second, passed(Preflight), "iptables→userspace staging: record fill"},
			{second, passed(Staging), "iptables→userspace verifying: record check verify probe-canary"},
			{second, passed(Verifying), "iptables→userspace holding: record freeze hold hand-over-affinity"},
			{second, passed(Holding), "iptables→userspace cutting: record promote retire release"},
			{second, passed(Cutting), "iptables→userspace proving: record prove verify"},
			{second, passed(Proving), "iptables→userspace draining: note await drain"},
			{second, passed(Draining), "iptables→userspace clearing: note await clear stop"},
			{second, passed(Clearing), "→ idle: finish"},
		},
		"is a dry run": {
			{0, Event{Kind: Ask, Plan: Plan{From: "iptables", To: "userspace", DryRun: true}}, "iptables→userspace preflight: launch"},
			{0, passed(Preflight), "iptables→userspace staging: record fill"},
			{0, passed(Staging), "iptables→userspace verifying: record check verify probe-canary"},
			{0, passed(Verifying), "userspace→iptables draining: note await drain"},
			{0, passed(Draining), "userspace→iptables clearing: note await clear stop"},
			{0, passed(Clearing), "→ idle: finish"},
		},
		"is refused": append(upTo(Preflight),
			step{second, failed(Preflight), "userspace→iptables draining: note await drain"},
			step{second, passed(Draining), "userspace→iptables clearing: note await clear stop"},
			step{second, passed(Clearing), "→ idle: finish"}),
		"does not verify": append(upTo(Verifying),
			step{second, failed(Verifying), "userspace→iptables draining: note await drain"}),
		"loses the one that comes": append(upTo(Holding),
			step{second, Event{Kind: Lost, Why: "killed"}, "userspace→iptables draining: note await drain"}),
		"loses the one that comes when traffic is switched": append(upTo(Proving),
			step{second, Event{Kind: Lost, Why: "killed"}, "iptables→userspace returning: note restore recall"}),
		"cannot switch traffic": append(upTo(Cutting),
			step{second, failed(Cutting), "iptables→userspace returning: note restore recall"},
			step{second, passed(Returning), "userspace→iptables draining: note await drain"}),
		"has a canary that dies": append(upTo(Proving),
			step{second, failed(Proving), "iptables→userspace returning: note restore recall"},
			step{second, failed(Returning), "iptables→userspace returning"},
			step{again, Event{Kind: Tick}, "iptables→userspace returning: note restore recall"},
			step{second, passed(Returning), "userspace→iptables draining: note await drain"},
			step{second, passed(Draining), "userspace→iptables clearing: note await clear stop"},
			step{second, passed(Clearing), "→ idle: finish"}),
		"takes too long": append(upTo(Staging),
			step{179 * second, Event{Kind: Tick}, "iptables→userspace staging"},
			step{second, Event{Kind: Tick}, "userspace→iptables draining: note await drain"}),
		"gets on slowly": append(upTo(Staging),
			step{179 * second, Event{Kind: Progressed}, "iptables→userspace staging"},
			step{179 * second, Event{Kind: Tick}, "iptables→userspace staging"},
			step{second, Event{Kind: Tick}, "userspace→iptables draining: note await drain"}),
		"gets on for ever": append(upTo(Cutting),
			step{14 * second, Event{Kind: Progressed}, "iptables→userspace cutting"},
			step{14 * second, Event{Kind: Progressed}, "iptables→userspace cutting"},
			step{progressFactor*15*second - 28*second, Event{Kind: Progressed}, "iptables→userspace cutting"},
			step{0, Event{Kind: Tick}, "iptables→userspace returning: note restore recall"}),
		"holds updates back for too long, whatever is reported": append(upTo(Cutting),
			step{time.Second, Event{Kind: Progressed}, "iptables→userspace cutting"},
			step{time.Second, Event{Kind: Progressed}, "iptables→userspace cutting"},
			step{time.Second / 2, Event{Kind: Tick}, "iptables→userspace cutting"},
			step{time.Second, Event{Kind: Tick}, "iptables→userspace returning: note restore recall"}),
		"does not come to hold": append(upTo(Holding),
			step{maxHeld - 1, Event{Kind: Progressed}, "iptables→userspace holding"},
			step{1, Event{Kind: Tick}, "userspace→iptables draining: note await drain"}),
		"comes from one that does not serve, and fails": {
			{0, Event{Kind: Ask, Plan: Plan{From: "ipvs", To: "iptables", FromDown: true, Drain: time.Minute}}, "ipvs→iptables preflight: launch"},
			{0, passed(Preflight), "ipvs→iptables staging: record fill"},
			{0, failed(Staging), "iptables→ipvs draining: note drain"},
			{0, passed(Draining), "iptables→ipvs clearing: note stop"},
			{0, passed(Clearing), "→ idle: finish"},
		},
		"comes from one that does not serve, and has a canary that dies": {
			{0, Event{Kind: Ask, Plan: Plan{From: "ipvs", To: "iptables", FromDown: true, Drain: time.Minute}}, "ipvs→iptables preflight: launch"},
			{0, passed(Preflight), "ipvs→iptables staging: record fill"},
			{0, passed(Staging), "ipvs→iptables verifying: record check verify probe-canary"},
			{0, passed(Verifying), "ipvs→iptables holding: record freeze hold hand-over-affinity"},
			{0, passed(Holding), "ipvs→iptables cutting: record promote retire release"},
			{0, passed(Cutting), "ipvs→iptables proving: record prove verify"},
			{0, failed(Proving), "→ idle: finish"},
		},
		"cleans up what an earlier one left": {
			{0, Event{Kind: Ask, Plan: Plan{From: "ipvs", To: "iptables", Leftover: true, Drain: time.Minute}}, "ipvs→iptables proving: record prove verify"},
			{0, passed(Proving), "ipvs→iptables draining: note await drain"},
			{0, passed(Draining), "ipvs→iptables clearing: note await clear stop"},
			{0, passed(Clearing), "→ idle: finish"},
		},
		"does not clean up what an earlier one left, without a canary": {
			{0, Event{Kind: Ask, Plan: Plan{From: "ipvs", To: "iptables", Leftover: true, Drain: time.Minute}}, "ipvs→iptables proving: record prove verify"},
			{0, failed(Proving), "→ idle: finish"},
		},
		"hears from a stage that is over": append(upTo(Proving),
			step{0, failed(Staging), "iptables→userspace proving"}),
		"drains for as long as it may": append(upTo(Draining),
			step{14 * time.Minute, Event{Kind: Tick}, "iptables→userspace draining"},
			step{0, Event{Kind: Lost}, "iptables→userspace draining"},
			step{time.Minute, Event{Kind: Tick}, "iptables→userspace clearing: note await clear stop"}),
		"cannot clear away": append(upTo(Clearing),
			step{179 * second, failed(Clearing), "iptables→userspace clearing"},
			step{again, Event{Kind: Tick}, "iptables→userspace clearing: note await clear stop"},
			step{0, failed(Clearing), "→ idle: finish"}),
		"is wanted back while it drains": append(upTo(Draining),
			step{second, ask, "iptables→userspace draining"},
			step{second, Event{Kind: Ask, Plan: toUserspace.back()}, "userspace→iptables preflight: launch"},
			step{second, failed(Preflight), "iptables→userspace draining: note await drain"}),
		"of one mode is asked for again while it drains": {
			{0, Event{Kind: Ask, Plan: Plan{From: "m", To: "m", Same: true, Drain: time.Minute}}, "m→m preflight: launch"},
			{0, passed(Preflight), "m→m staging: record fill"},
			{0, passed(Staging), "m→m verifying: record check probe-canary"},
			{0, passed(Verifying), "m→m holding: record"},
			{0, passed(Holding), "m→m cutting: record stop promote"},
			{0, passed(Cutting), "m→m proving: record fill prove verify"},
			{0, passed(Proving), "m→m draining: note drain"},
			{0, Event{Kind: Ask, Plan: Plan{From: "m", To: "m", Same: true}}, "m→m draining"},
		},
		"is reset": append(upTo(Proving),
			step{0, Event{Kind: Reset, Why: "someone asked"}, "iptables→userspace returning: note restore recall"}),
		"is reset when it is decided": append(upTo(Draining),
			step{0, Event{Kind: Reset, Why: "someone asked"}, "iptables→userspace draining"},
			step{again, Event{Kind: Tick}, "iptables→userspace draining"}),
		"is asked for twice": append(upTo(Staging),
			step{0, ask, "iptables→userspace staging"}),
	} {
		t.Run(name, func(t *testing.T) {
			var m Machine
			now := time.Unix(0, 0)
			for i, s := range story {
				now = now.Add(s.after)
				var work []Action
				m, work = m.Step(s.event, now)
				if got := describe(m, work); got != s.want {
					t.Fatalf("step %d:\n%s, want\n%s", i+1, got, s.want)
				}
			}
		})
	}
}

func describe(m Machine, work []Action) string {
	text := fmt.Sprintf("%s→%s %s", m.Plan.From, m.Plan.To, m.Stage)
	if len(work) > 0 {
		text += ": " + words(work)
	}
	return text
}

func words(work []Action) string {
	var all []string
	for _, a := range work {
		all = append(all, a.String())
	}
	return strings.Join(all, " ")
}

// TestSameMode: the process that comes takes over when the other has ended; of a mode that keeps nothing in the
// kernel both serve for a moment.
func TestSameMode(t *testing.T) {
	for overlap, stages := range map[bool]map[Stage]string{
		false: {
			Verifying: "record check probe-canary",
			Cutting:   "record stop promote",
			Clearing:  "note stop",
			Returning: "note reinstate",
		},
		true: {
			Verifying: "record check probe-canary",
			Cutting:   "record offer retire promote",
			Clearing:  "note stop",
			Returning: "note recall restore",
		},
	} {
		p := Plan{From: "m", To: "m", Same: true, Overlap: overlap}
		for stage, want := range stages {
			if got := words(p.work(stage)); got != want {
				t.Errorf("%s, overlap %t: %s, want %s", stage, overlap, got, want)
			}
		}
	}
}

// TestTook: of a swap whose beginning is not known it is not known how long it took.
func TestTook(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for began, want := range map[time.Time]time.Duration{
		{}:                        0,
		now.Add(-3 * time.Second): 3 * time.Second,
		now.Add(time.Hour):        0, // the clock was set back
	} {
		if got := (Machine{Plan: toUserspace, Began: began}).outcome(now, "").Took; got != want {
			t.Errorf("begun %v: it took %s, want %s", began, got, want)
		}
	}
}

// TestBusy: whether a swap was undone because updates were held back for too long is known at its
// end, and not mistaken for what failed sooner.
func TestBusy(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for after, want := range map[time.Duration]bool{
		time.Second:                    false,
		maxHeld - 10*time.Millisecond:  true, // a call's deadline, as the caller saw it
		maxHeld + 100*time.Millisecond: true,
	} {
		m := Machine{Stage: Cutting, Plan: toUserspace, Since: now, Held: now}
		m, _ = m.Step(Event{Kind: Failed, Stage: Cutting, Why: "promote"}, now.Add(after))
		for range 5 {
			m, _ = m.Step(Event{Kind: Passed, Stage: m.Stage}, now.Add(after))
		}
		if m.Stage != Idle || m.Last.Busy != want {
			t.Errorf("failed after %s: %s, %+v, want busy %t", after, m.Stage, m.Last, want)
		}
	}
}
