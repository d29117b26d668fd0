// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"time"
)

// A Plan is a swap to be made.
type Plan struct {
	From    string        `json:"from"`              // the mode that serves, and leaves
	To      string        `json:"to"`                // the mode that comes, and serves from then on
	Same    bool          `json:"same,omitempty"`    // the same mode, another binary: From yields what To then has
	Overlap bool          `json:"overlap,omitempty"` // with Same: both can serve at a time, because nothing is in the kernel
	Why     string        `json:"why"`               // it was asked for
	Drain   time.Duration `json:"drain"`             // how long From may take to finish what it began
	Force   bool          `json:"force,omitempty"`   // also if Services or connections are lost by it
	DryRun  bool          `json:"dryRun,omitempty"`  // only up to the verification of To in Standby, and back

	// FromDown says that From did not serve when the swap was asked for. To then begins in
	// the role that the kernel shows, because its rules may be the ones that serve, and an
	// undo leaves those rules in place.
	FromDown bool `json:"fromDown,omitempty"`

	// LeaveRules says that From goes without Cleanup: it yields, its process ends, and its
	// rules stay in the kernel.
	LeaveRules bool `json:"leaveRules,omitempty"`

	// Leftover says that To serves already, and From is only what an earlier swap left in
	// the kernel: it is drained and cleaned up once To has passed the canary.
	Leftover bool `json:"leftover,omitempty"`

	// The slots tell processes of one mode apart.
	FromSlot string `json:"fromSlot,omitempty"`
	ToSlot   string `json:"toSlot,omitempty"`
}

func (p Plan) String() string {
	switch {
	case p.Same:
		return p.From + " → " + p.To + ", another binary"
	case p.Leftover:
		return p.From + " → " + p.To + ", cleaning up what an earlier swap left of " + p.From
	}
	return p.From + " → " + p.To
}

// cleans reports whether From is removed from the kernel at the end.
func (p Plan) cleans() bool { return !p.Same && !p.LeaveRules }

// back returns the swap that undoes p.
func (p Plan) back() Plan {
	p.From, p.To = p.To, p.From
	p.FromSlot, p.ToSlot = p.ToSlot, p.FromSlot
	return p
}

// reversed makes the one that was to come the one to leave. Its rules stay where they may
// be all that serves.
func (m Machine) reversed() Machine {
	m.Plan, m.Back = m.Plan.back(), !m.Back
	m.Plan.LeaveRules = m.Plan.FromDown
	return m
}

// A Machine is a swap so far, as a value. The zero Machine is Idle, and none was
// ever made.
type Machine struct {
	Stage Stage
	Plan  Plan      // the one to leave is always From, the one to stay To
	Since time.Time // when it came into Stage
	Moved time.Time // when a dataplane got on in it, as it reported
	Began time.Time // when the swap did
	Held  time.Time // when updates began to be held back; zero: they flow
	Undo  string    // why it is being undone; empty: it is not
	Back  bool      // To and From have changed places, because it is being undone
	Busy  bool      // it is being undone because updates were held back for too long
	Trial int       // how often the present stage's work has failed
	Next  time.Time // when it is tried again; zero: it goes on, or there is none
	Last  Outcome   // of the swap before
}

// An Outcome is how a swap ended.
type Outcome struct {
	Plan Plan // as asked for
	Took time.Duration
	At   time.Time
	Err  string // why the swap was undone; empty: it went well
	Left string // what could not be cleared away, and why; empty: nothing

	Stays   string // the mode that the host goes on with
	Undone  bool   // and with the process that it had before: the mode alone does not say that of another binary
	Busy    bool   // it was undone because updates were held back for too long: at another time it may go well
	Remains string // the mode that left rules in the kernel; empty: none
}

// OK reports whether the swap was made.
func (o Outcome) OK() bool { return o.Err == "" && !o.At.IsZero() }

// ByDryRun is why a dry run in which nothing went wrong is undone.
const ByDryRun = "dry run: it can serve all that is served now"

// An Event is what happened to a swap.
type Event struct {
	Kind  EventKind
	Stage Stage // of Passed and Failed: whose work it was
	Plan  Plan  // of Ask
	Why   string
}

// An EventKind is a kind of Event.
type EventKind uint8

// The events.
const (
	Ask        EventKind = iota // a swap is asked for
	Passed                      // the stage's work is done
	Failed                      // it is not, and why
	Lost                        // To's process is gone, or hangs
	Progressed                  // a dataplane reports that its work gets on
	Tick                        // time has passed
	Reset                       // whatever goes on is to be undone, as far as it can be
)

// again is how long after a failure the work of a stage that has no way back is
// tried again.
const again = 2 * time.Second

// Step returns what becomes of m by e. With work, the runner ends what it was doing
// and does that, and answers with Passed or Failed; without it goes on. An event
// that means nothing in a stage is ignored.
func (m Machine) Step(e Event, now time.Time) (next Machine, work []Action) {
	stale := (e.Kind == Passed || e.Kind == Failed) && e.Stage != m.Stage
	switch {
	case stale:
		return m, nil
	case e.Kind == Ask:
		return m.ask(e.Plan, now)
	case m.Stage == Idle:
		return m, nil
	case e.Kind == Passed:
		return m.passed(now)
	case e.Kind == Failed:
		return m.failed(e.Why, now)
	case e.Kind == Reset:
		return m.reset(e.Why, now)
	case e.Kind == Lost && m.Stage < Draining:
		return m.failed(e.Why, now)
	case e.Kind == Progressed:
		m.Moved = now
		return m, nil
	case e.Kind == Tick && m.Next.IsZero() && m.late(now):
		return m.overdue(now)
	case e.Kind == Tick && !m.Next.IsZero() && !now.Before(m.Next):
		m.Next = time.Time{}
		return m, m.Plan.work(m.Stage)
	}
	return m, nil
}

// ask begins a swap: from rest, or back to the one that is about to leave.
func (m Machine) ask(p Plan, now time.Time) (Machine, []Action) {
	back := m.Stage == Draining && p.From == m.Plan.To && p.To == m.Plan.From && m.Plan.cleans()
	if m.Stage != Idle && !back {
		return m, nil
	}
	if m.Stage == Draining {
		m.Last = m.outcome(now, "")
	}
	first := Preflight
	if p.Leftover {
		first = Proving
	}
	return Machine{Plan: p, Began: now, Last: m.Last}.enter(first, now)
}

// fresh reports whether m has just begun by an Ask.
func (m Machine) fresh() bool {
	return m.Stage == Preflight || m.Plan.Leftover && m.Stage == Proving
}

func (m Machine) passed(now time.Time) (Machine, []Action) {
	if m.Stage == Verifying && m.Plan.DryRun {
		m.Undo = ByDryRun
		return m.reversed().enter(Draining, now)
	}
	switch m.Stage {
	case Returning:
		return m.reversed().enter(Draining, now)
	case Clearing:
		return m.rest(now, "")
	}
	return m.enter(m.Stage+1, now)
}

// failed returns what becomes of a stage whose work failed. Before traffic is switched,
// To is cleared away; after, it is switched back. What has no way back is tried
// again, until its time is over.
func (m Machine) failed(why string, now time.Time) (Machine, []Action) {
	if m.Undo == "" {
		m.Busy = m.nearlyHeldTooLong(now)
	}
	switch {
	case m.Stage == Proving && (m.Plan.FromDown || m.Plan.Leftover):
		return m.rest(now, why) // there is nothing better to go back to
	case m.Stage == Cutting && m.Plan.FromDown:
		m.Undo = why
		return m.reversed().enter(Draining, now)
	case m.Stage.cut():
		m.Undo = why
		return m.enter(Returning, now)
	case m.Stage < Cutting:
		m.Undo = why
		return m.reversed().enter(Draining, now)
	case now.Sub(m.Since) >= m.limit() && m.Stage == Draining:
		return m.enter(Clearing, now)
	case now.Sub(m.Since) >= m.limit():
		// If From cannot be made Active again, To is what the kernel has, and is left alone.
		return m.rest(now, why)
	}
	m.Trial++
	m.Next = now.Add(again)
	return m, []Action{}
}

func (m Machine) overdue(now time.Time) (Machine, []Action) {
	if m.Stage == Draining {
		return m.enter(Clearing, now)
	}
	if m.heldTooLong(now) {
		return m.failed(fmt.Sprintf("updates were held back for %s, and %s was not done", maxHeld, m.Stage), now)
	}
	if now.Sub(m.Since) >= m.longest() {
		return m.failed(fmt.Sprintf("%s took longer than %s", m.Stage, m.longest()), now)
	}
	return m.failed(fmt.Sprintf("%s did not get on for %s", m.Stage, m.limit()), now)
}

// late reports whether the present stage has taken too long, or has come to a stop.
func (m Machine) late(now time.Time) bool {
	if m.Stage == Draining {
		return now.Sub(m.Since) >= m.limit()
	}
	if m.heldTooLong(now) {
		return true
	}
	last := m.Since
	if m.Moved.After(last) {
		last = m.Moved
	}
	return now.Sub(last) >= m.limit() || now.Sub(m.Since) >= m.longest()
}

// heldTooLong reports whether updates have been held back for as long as they may,
// whatever progress a dataplane reports: the one that serves must follow its Services.
func (m Machine) heldTooLong(now time.Time) bool {
	return !m.Held.IsZero() && now.Sub(m.Held) >= maxHeld
}

// nearlyHeldTooLong is heldTooLong for an action that failed: the error of a call may come a moment
// before its deadline.
func (m Machine) nearlyHeldTooLong(now time.Time) bool { return m.heldTooLong(now.Add(maxHeld / 20)) }

func (m Machine) reset(why string, now time.Time) (Machine, []Action) {
	if m.Stage < Draining {
		return m.failed(why, now)
	}
	return m, nil
}

// rest ends the swap. left is what could not be done.
func (m Machine) rest(now time.Time, left string) (Machine, []Action) {
	last := m.outcome(now, left)
	last.Stays = m.Plan.To
	if left != "" && m.Plan.cleans() || m.Plan.LeaveRules {
		last.Remains = m.Plan.From
	}
	return Machine{Stage: Idle, Since: now, Last: last}, []Action{Finish}
}

func (m Machine) outcome(now time.Time, left string) Outcome {
	// Began may be from before a restart, by a clock that was set back since.
	o := Outcome{Plan: m.Plan, At: now, Err: m.Undo, Left: left, Undone: m.Back, Busy: m.Busy}
	if !m.Began.IsZero() { // else it is not known
		o.Took = max(0, now.Sub(m.Began))
	}
	if m.Back {
		o.Plan = o.Plan.back() // as asked for
	}
	return o
}

func (m Machine) enter(s Stage, now time.Time) (Machine, []Action) {
	m.Stage, m.Since, m.Moved, m.Trial, m.Next = s, now, time.Time{}, 0, time.Time{}
	switch {
	case s == Holding && !m.Plan.Same: // in that, To waits for the writer's lock
		m.Held = now
	case s != Cutting:
		m.Held = time.Time{}
	}
	return m, m.Plan.work(s)
}

// limit returns how long the present stage may take without getting on.
func (m Machine) limit() time.Duration {
	if m.Stage == Draining {
		return m.Plan.Drain
	}
	return limits[m.Stage]
}

// longest returns how long it may take if it does.
func (m Machine) longest() time.Duration {
	if m.Stage == Draining {
		return m.Plan.Drain
	}
	return progressFactor * limits[m.Stage]
}
