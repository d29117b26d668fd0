// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"math/rand/v2"
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
		want  string // who leaves and who stays, the stage, then the work
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
		"is to stay whatever the canary says": {
			{0, Event{Kind: Ask, Plan: Plan{From: "iptables", To: "userspace", Stay: true}}, "iptables→userspace preflight: launch"},
			{0, passed(Preflight), "iptables→userspace staging: record fill"},
			{0, passed(Staging), "iptables→userspace verifying: record check verify probe-canary"},
			{0, passed(Verifying), "iptables→userspace holding: record freeze hold hand-over-affinity"},
			{0, passed(Holding), "iptables→userspace cutting: record promote retire release"},
			{0, passed(Cutting), "iptables→userspace proving: record prove verify"},
			{0, failed(Proving), "→ idle: finish"},
		},
		"is to stay, and cannot switch traffic": {
			{0, Event{Kind: Ask, Plan: Plan{From: "iptables", To: "userspace", Stay: true}}, "iptables→userspace preflight: launch"},
			{0, passed(Preflight), "iptables→userspace staging: record fill"},
			{0, passed(Staging), "iptables→userspace verifying: record check verify probe-canary"},
			{0, passed(Verifying), "iptables→userspace holding: record freeze hold hand-over-affinity"},
			{0, passed(Holding), "iptables→userspace cutting: record promote retire release"},
			{0, failed(Cutting), "iptables→userspace returning: note restore recall"},
		},
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
			step{patience*15*second - 28*second, Event{Kind: Progressed}, "iptables→userspace cutting"},
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
			{0, passed(Verifying), "m→m holding: record freeze hold hand-over-affinity"},
			{0, passed(Holding), "m→m cutting: record retire promote release"},
			{0, passed(Cutting), "m→m proving: record prove verify"},
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

// TestSameMode has the one that comes take over what the other lets go of; of a mode that
// keeps nothing in the kernel both serve for a moment.
func TestSameMode(t *testing.T) {
	for overlap, stages := range map[bool]map[Stage]string{
		false: {
			Verifying: "record check probe-canary",
			Cutting:   "record retire promote release",
			Clearing:  "note stop",
			Returning: "note recall restore",
		},
		true: {
			Verifying: "record check probe-canary",
			Cutting:   "record promote retire promote release",
			Clearing:  "note stop",
			Returning: "note restore recall",
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

// TestAnySwap leads swaps through anything that can happen, with the host killed
// on the way, in a small model of a node, and watches what traffic relies on.
func TestAnySwap(t *testing.T) {
	var ends [3]int
	for seed := range uint64(2000) {
		n := &node{Rand: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(0, 0), same: seed%4 == 0, stuck: seed%10 == 1, fromDown: seed%4 == 1}
		n.planes = [2]plane{{catches: true, rules: true, told: true}, {}}
		if n.fromDown { // what serves are To's rules, and no process keeps them up to date
			n.planes = [2]plane{{}, {catches: true, rules: true}}
		}
		if err := n.story(); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(n.log, "\n"))
		}
		switch {
		case n.m.Last.Left != "":
			ends[2]++
		case n.m.Last.Err != "":
			ends[1]++
		default:
			ends[0]++
		}
	}
	if ends[0] == 0 || ends[1] == 0 || ends[2] == 0 {
		t.Errorf("%d swaps were made, %d undone, %d left something: the model does not see it all", ends[0], ends[1], ends[2])
	}
}

// A plane is what the kernel has of a dataplane.
type plane struct{ catches, rules, told bool }

// A node is a model of one, on which anything may fail.
type node struct {
	*rand.Rand
	log       []string
	now       time.Time
	same      bool
	stuck     bool // nothing can be cleared away
	fromDown  bool // From does not serve, and To's mode does: by rules that it finds
	m         Machine
	disk      Machine // as recorded last
	planes    [2]plane
	proved    bool // the canary has passed
	pos       int  // which of planes is Plan.From of the swap as asked for
	forgotten bool // the host was killed before anything was written down
}

var (
	errLuck   = errors.New("no luck")
	errKilled = errors.New("the host is killed")
)

// story is one swap until it has ended.
func (n *node) story() error {
	p := toUserspace
	p.Same, p.FromDown = n.same, n.fromDown
	if n.same {
		p.To = p.From
	}
	if err := n.step(Event{Kind: Ask, Plan: p}); err != nil {
		return err
	}
	for range 400 {
		if n.m.Stage == Idle && n.forgotten {
			return n.serves()
		}
		if n.m.Stage == Idle {
			return n.atRest()
		}
		if n.IntN(25) == 0 {
			if err := n.do(n.killed()); err != nil {
				return err
			}
			continue
		}
		n.now = n.now.Add(time.Duration(n.Int64N(int64(20 * time.Second))))
		if err := n.step(Event{Kind: []EventKind{Tick, Tick, Tick, Progressed, Lost, Reset}[n.IntN(6)], Why: "chance"}); err != nil {
			return err
		}
	}
	return fmt.Errorf("it does not end: %s since %s", n.m.Stage, n.now.Sub(n.m.Since))
}

// killed is the host's end at any time, and the next one's beginning.
func (n *node) killed() (work []Action) {
	n.m, work = Recover(n.disk, n.now)
	n.log = append(n.log, "killed → "+describe(n.m, work))
	if n.m.Stage == Idle { // nothing was written yet: To is not known of
		if n.forgotten = true; !n.fromDown {
			n.planes[1-n.pos] = plane{}
		}
	}
	return work
}

// step tells the machine, does the work and tells it the result, and so on until
// something must come from outside.
func (n *node) step(e Event) error {
	var work []Action
	n.m, work = n.m.Step(e, n.now)
	n.log = append(n.log, fmt.Sprintf("%d %s → %s", e.Kind, e.Why, describe(n.m, work)))
	return n.do(work)
}

func (n *node) do(work []Action) error {
	for len(work) > 0 {
		stage := n.m.Stage
		err := n.act(work)
		if bad := n.serves(); bad != nil {
			return bad
		}
		if stage == Idle {
			return nil
		}
		if errors.Is(err, errKilled) {
			work = n.killed()
			continue
		}
		e := Event{Kind: Passed, Stage: stage}
		if errors.Is(err, errLuck) {
			e = Event{Kind: Failed, Stage: stage, Why: "no luck"}
		} else if err != nil {
			return err
		}
		n.now = n.now.Add(time.Second)
		n.m, work = n.m.Step(e, n.now)
		n.log = append(n.log, fmt.Sprintf("%v → %s", err, describe(n.m, work)))
	}
	return nil
}

// act does work until something fails.
func (n *node) act(work []Action) error {
	from, to := &n.planes[n.pos], &n.planes[1-n.pos]
	if n.m.Back {
		from, to = to, from
	}
	for _, a := range work {
		lucky := n.IntN(12) > 0 && !(a == Clear && n.stuck)
		switch {
		case n.IntN(40) == 0 && a != Finish:
			return errKilled
		case !lucky && a != Finish && a != Note && a != Release:
			return errLuck
		case a == Record, a == Note && lucky:
			n.disk = n.m
		case a == Launch && !n.same && !n.m.Plan.FromDown:
			to.catches = false // Standby
		case a == Await:
			if !to.catches || !to.told {
				return errLuck
			}
		case a == Drain && n.m.Plan.cleans():
			from.catches = false
		case a == Fill:
			to.told, to.rules = true, true
		case a == Promote:
			if !to.told {
				return errors.New("one becomes Active that was not told everything")
			}
			to.catches = true
		case a == Retire:
			if !to.catches && !n.same {
				return errors.New("one retires before the other is Active")
			}
			from.catches = n.same // of the same mode: the kernel goes on as it is
		case a == Prove:
			n.proved = true
		case a == Restore:
			from.catches = true
		case a == Recall:
			if !from.catches {
				return errors.New("one is recalled before the other is back")
			}
			to.catches = n.same
		case a == Clear:
			if from.catches {
				return errors.New("one is cleared that catches packets")
			}
			if n.m.Plan.FromDown && n.m.Back {
				return errors.New("one is cleared whose rules may be all that serves")
			}
			if !n.m.Back && !n.proved {
				return errors.New("one is cleared before the canary of the other has passed")
			}
			*from = plane{}
		}
	}
	return nil
}

// serves checks that somebody does.
func (n *node) serves() error {
	for _, p := range n.planes {
		if p.catches && p.rules {
			return nil
		}
	}
	return errors.New("nobody catches packets")
}

func (n *node) atRest() error {
	o := n.m.Last
	if o.At.IsZero() {
		return errors.New("ended without an outcome")
	}
	if o.OK() && !n.proved && o.Left == "" {
		return errors.New("went well without a canary")
	}
	return n.serves()
}

// TestTook: of a swap whose beginning nobody wrote down it is not known how long it took.
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
