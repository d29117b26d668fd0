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

// TestAnySwap leads swaps through anything that can happen, with the host killed
// on the way, in a small model of a node, and watches what traffic relies on.
func TestAnySwap(t *testing.T) {
	var ends [3]int
	for seed := range uint64(2000) {
		n := &node{Rand: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(0, 0), same: seed%4 == 0, stuck: seed%10 == 1, fromDown: seed%4 == 1}
		n.kernel = [2]kernelState{{catches: true, rules: true, filled: true}, {}}
		if n.fromDown { // what serves are To's rules, and no process keeps them up to date
			n.kernel = [2]kernelState{{}, {catches: true, rules: true}}
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

// A kernelState is what the kernel has of one dataplane.
type kernelState struct{ catches, rules, filled bool }

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
	kernel    [2]kernelState
	proved    bool // the canary has passed
	pos       int  // which of kernel is Plan.From of the swap as asked for
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
			n.kernel[1-n.pos] = kernelState{}
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
	from, to := &n.kernel[n.pos], &n.kernel[1-n.pos]
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
			if !to.catches || !to.filled {
				return errLuck
			}
		case a == Drain && n.m.Plan.cleans():
			from.catches = false
		case a == Fill:
			to.filled, to.rules = true, true
		case a == Promote:
			if !to.filled {
				return errors.New("one becomes Active that was not sent everything")
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
			*from = kernelState{}
		}
	}
	return nil
}

// serves checks that one dataplane does.
func (n *node) serves() error {
	for _, p := range n.kernel {
		if p.catches && p.rules {
			return nil
		}
	}
	return errors.New("no dataplane catches packets")
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
