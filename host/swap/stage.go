// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"time"
)

// A Stage is how far a swap is.
type Stage uint8

// The stages, in the order of a swap that goes well; Returning is the way back.
const (
	Idle      Stage = iota
	Preflight       // can To run here?
	Staging         // To is sent everything, and catches nothing
	Verifying       // can it serve what From serves, and has the kernel what To was sent?
	Holding         // no update goes to either; both have confirmed the same
	Cutting         // To becomes Active, From drains
	Proving         // connections to the host's own Service find their way
	Draining        // From keeps what it has begun
	Clearing        // From leaves no trace
	Returning       // From becomes Active again, To drains
)

var stages = [...]string{"idle", "preflight", "staging", "verifying", "holding", "cutting", "proving", "draining", "clearing", "returning"}

func (s Stage) String() string {
	if int(s) < len(stages) {
		return stages[s]
	}
	return fmt.Sprintf("stage(%d)", s)
}

// ParseStage returns the stage of that name.
func ParseStage(name string) (Stage, error) {
	for s, n := range stages {
		if n == name {
			return Stage(s), nil
		}
	}
	return Idle, fmt.Errorf("no such stage: %q", name)
}

// limits are how long each stage may go without a sign of progress from either
// dataplane; one that makes progress is not failed for being slow, until it has taken
// progressFactor times as long. Draining has its own limit, from the plan, and must be done by then.
var limits = [...]time.Duration{
	Preflight: 45 * time.Second, // a launch has a shorter limit, but for one that gets no processor
	Staging:   3 * time.Minute,  // no traffic depends on it, and not every dataplane reports progress
	Verifying: 3 * time.Minute,  // the kernel may be slow to list much
	Holding:   10 * time.Second,
	Cutting:   15 * time.Second,
	Proving:   3 * time.Minute,
	Clearing:  3 * time.Minute,
	Returning: 30 * time.Second,
}

// maxHeld is how long updates may be held back in all, from the beginning of Holding to
// the end of Cutting. The Runner looks twice a second.
const maxHeld = 4500 * time.Millisecond

// progressFactor is how many times its limit a stage may take, with progress.
const progressFactor = 10

// cut reports whether packets may go to To in s: what was done cannot be undone
// without draining.
func (s Stage) cut() bool { return s == Cutting || s == Proving }

// An Action is a thing to do in a stage.
type Action uint8

// The actions.
const (
	Record           Action = iota + 1 // write down where the swap stands, durably
	Note                               // the same, where going on without is better than staying
	Launch                             // bring To up, in Standby
	Check                              // may it replace From?
	Fill                               // wait until To has confirmed everything
	Verify                             // compare what the kernel serves for To with what To was sent
	ProbeCanary                        // find out which ways to the canary lead somewhere now
	Freeze                             // let no change of Services in
	Hold                               // wait for both to confirm what there is, and send neither anything
	HandOverAffinity                   // hand client affinity over
	Promote                            // To: Active
	Retire                             // From: Draining, or Yielded if To is of the same mode
	Release                            // let changes and updates flow again
	Prove                              // every way that led to the canary before must lead there now
	Offer                              // To: Active, unless From has the writer's lock
	Restore                            // From: Active, once it has confirmed everything
	Reinstate                          // To's process ends, and From's starts again with the binary that it had
	Recall                             // To: Draining, or Yielded
	Await                              // wait until To serves: only then may From be removed
	Drain                              // wait until From has nothing left that it began
	Clear                              // From: Cleanup
	Stop                               // end From's process
	Finish                             // forget the swap; To is the dataplane now, and From's process is ended if it is still there
)

var actions = [...]string{
	Record: "record", Note: "note", Launch: "launch", Check: "check", Fill: "fill", Verify: "verify", ProbeCanary: "probe-canary",
	Freeze: "freeze", Hold: "hold", HandOverAffinity: "hand-over-affinity", Promote: "promote", Retire: "retire", Release: "release",
	Prove: "prove", Offer: "offer", Restore: "restore", Reinstate: "reinstate", Recall: "recall", Await: "await", Drain: "drain", Clear: "clear", Stop: "stop", Finish: "finish",
}

func (a Action) String() string {
	if int(a) < len(actions) && a > 0 {
		return actions[a]
	}
	return fmt.Sprintf("action(%d)", a)
}

// work returns what a stage consists of. An error ends it.
func (p Plan) work(s Stage) []Action {
	switch s {
	case Preflight:
		return []Action{Launch}
	case Staging:
		return []Action{Record, Fill}
	case Verifying:
		if p.Same { // the kernel has what From made of it, until To has the writer's lock
			return []Action{Record, Check, ProbeCanary}
		}
		return []Action{Record, Check, Verify, ProbeCanary}
	case Holding:
		switch {
		case p.Same && p.Overlap:
			return []Action{Record, HandOverAffinity}
		case p.Same:
			return []Action{Record} // the kernel has the affinity
		}
		return []Action{Record, Freeze, Hold, HandOverAffinity}
	case Cutting:
		switch {
		case p.Same && p.Overlap: // sockets can be shared, a lock cannot
			return []Action{Record, Offer, Retire, Promote}
		case p.Same:
			return []Action{Record, Stop, Promote}
		}
		return []Action{Record, Promote, Retire, Release}
	case Proving:
		if p.Same {
			return []Action{Record, Fill, Prove, Verify}
		}
		return []Action{Record, Prove, Verify}
	case Draining:
		if !p.cleans() {
			return []Action{Note, Drain}
		}
		return []Action{Note, Await, Drain}
	case Clearing:
		if !p.cleans() {
			return []Action{Note, Stop}
		}
		return []Action{Note, Await, Clear, Stop}
	case Returning:
		switch {
		case p.Same && p.Overlap:
			return []Action{Note, Recall, Restore}
		case p.Same:
			return []Action{Note, Reinstate}
		}
		return []Action{Note, Restore, Recall}
	}
	return nil
}
