// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"cmp"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A State is the input of Plan, except for the Want. Its methods record observations; they
// modify the State and its instances.
type State struct {
	Facts Facts
	Have  []Instance
	last  ID
}

// instance returns the instance with an ID, or nil.
func (s *State) instance(id ID) *Instance {
	at := slices.IndexFunc(s.Have, func(i Instance) bool { return i.ID == id })
	if at < 0 {
		return nil
	}
	return &s.Have[at]
}

// Begin records that a step begins, and returns the step with the ID of its instance. The
// caller must write Facts to disk before it runs the step.
func (s *State) Begin(step Step, build string, now time.Time) Step {
	if step.Do == Start && step.On == 0 {
		s.last++
		step.On = s.last
		isNew := step.Mode != s.Facts.Served && !slices.Contains(s.Facts.Left, step.Mode)
		s.Have = append(s.Have, Instance{ID: step.On, Mode: step.Mode, Flows: -1, Since: now, New: isNew})
	}
	on := s.instance(step.On)
	on.Doing, on.Next = step.Do, time.Time{}
	if with := s.instance(step.With); with != nil {
		with.Doing = step.Do
	}
	on.Clearing = on.Clearing || step.Do == Cleanup
	if step.Do == Start {
		on.Build = build
		s.Facts = s.Facts.WithLeft(on.Mode)
	}
	return step
}

// Refuse records that w failed, from the Refuse step. The instance that failed may be used
// again later.
func (s *State) Refuse(step Step, w Want, now time.Time) {
	on, former := s.instance(step.On), ""
	for _, i := range s.Have {
		if i.ID != on.ID && i.Mode == on.Mode {
			former = i.Build
		}
	}
	s.Facts = s.Facts.WithRefusal(w, cmp.Or(on.Former, former), step.Why, now.Round(0), step.Next)
	on.Verified, on.Proved, on.Err, on.Next, on.Refused = Unknown, Unknown, nil, time.Time{}, true
}

// An Outcome is the result of a step.
type Outcome struct {
	Err                       error
	Answer                    Answer // for Verify and Prove
	DiesWithProcess, External bool   // for Start: see Instance

	Loss Loss // for Start, if Err is not nil
}

// A Loss is the end of the process of an instance, or of the attempt to start it.
type Loss struct {
	Err    error
	Reason Reason
	Served time.Duration // how long the process was in session
	Dialed bool          // something else runs the process, so another attempt is cheap
	Jitter float64       // in [0, 1): the fraction by which to shorten the pause, so that plugins on many nodes do not restart in step
}

// A Reason is the cause of a Loss.
type Reason uint8

// Values of Reason.
const (
	Crashed Reason = iota // the process ended, hung, or did not start
	Unable                // the plugin reports that it cannot run here, so retrying helps only after a change
	Fenced                // another host has taken over the plugin
	Asked                 // the host ended the process on purpose
)

const (
	longLife     = 60 * time.Second       // after such a session a process restarts at once, and its failure count is reset
	firstBackoff = 100 * time.Millisecond // before a restart; doubled with each consecutive failure,
	lastBackoff  = 30 * time.Second       // up to this maximum
	dialInterval = time.Second            // between attempts to dial an external plugin
	refusedRetry = time.Minute            // the cause may have been fixed without our notice
	fencedRetry  = time.Hour              // the other host may have ended by then
)

// backoff returns first, doubled for each failure after the first, and at most last.
func backoff(first, last time.Duration, failures int) time.Duration {
	return min(first<<min(max(failures-1, 0), 16), last)
}

// markLost records a Loss, and sets when the instance may restart.
func (i *Instance) markLost(l Loss, now time.Time) {
	i.Up, i.Synced, i.Busy, i.Role, i.Since = false, false, false, 0, now
	i.Verified, i.Proved, i.Flows, i.Shown = Unknown, Unknown, -1, 0
	i.Served = i.Served && !i.DiesWithProcess
	i.Err = l.Err
	if l.Served >= longLife {
		i.Failures = 0
	}
	if l.Reason != Asked {
		i.Failures++
	}
	pause := time.Duration(0)
	switch {
	case l.Reason == Asked, l.Reason == Crashed && l.Served >= longLife:
	case l.Reason == Unable:
		pause = refusedRetry
	case l.Reason == Fenced:
		pause = fencedRetry
	case l.Dialed:
		pause = dialInterval
	default:
		pause = backoff(firstBackoff, lastBackoff, i.Failures)
		pause -= time.Duration(l.Jitter * float64(pause))
	}
	i.Next = now.Add(pause)
}

// End records the outcome of a step.
func (s *State) End(step Step, o Outcome, now time.Time) {
	on, with := s.instance(step.On), s.instance(step.With)
	if with != nil {
		with.Doing = 0
	}
	if on == nil {
		return
	}
	on.Doing = 0
	switch {
	case o.Err != nil && step.Do == Start:
		o.Loss.Err = o.Err
		on.markLost(o.Loss, now)
		return
	case o.Err != nil && step.Do != Verify && step.Do != Prove:
		on.recordFailure(o.Err, now)
		return
	}
	switch step.Do {
	case Start:
		role := step.Role
		if role == sdk.Active && !o.DiesWithProcess {
			role = 0
		}
		on.Up, on.Synced, on.DiesWithProcess, on.External, on.Role = true, false, o.DiesWithProcess, o.External, role
		on.Verified, on.Proved, on.Flows, on.Drained = Unknown, Unknown, -1, time.Time{}
		on.Next = time.Time{}
		on.Since, on.Err, on.New, on.Alone = now, nil, false, role == sdk.Active // Start with Active is planned only if nothing else serves
	case Verify:
		on.Verified, on.Err = o.Answer, o.Err
		if o.Err != nil {
			on.Next = now.Add(backoff(firstPause, lastPause, on.Failures+1))
		}
	case Prove:
		s.recordProof(on, o, now)
	case Cut, Promote, Replace:
		s.recordMove(step.Do, on, with, now)
	case Drain:
		on.startDraining(sdk.Draining, now)
	case Cleanup, Stop:
		if on.New || step.Do == Cleanup {
			s.Facts.Left = without(s.Facts.Left, on.Mode)
		}
		if on.Refused {
			s.Facts.Refused = s.Facts.Refused.afterRemoval(on, now)
		}
		s.Have = slices.DeleteFunc(s.Have, func(i Instance) bool { return i.ID == step.On })
	}
}

// recordFailure records that a step of i failed, and sets when the instance may retry.
func (i *Instance) recordFailure(err error, now time.Time) {
	i.Failures++
	i.Err, i.Next = err, now.Add(backoff(firstPause, lastPause, i.Failures))
}

// recordProof records the result of Prove. After a success, or if a proof is not possible, the mode counts as serving.
func (s *State) recordProof(on *Instance, o Outcome, now time.Time) {
	on.Proved, on.Err = o.Answer, o.Err
	switch {
	case o.Answer == Yes || o.Answer == Cannot:
	case o.Answer == No && (on.Alone || on.Mode == s.Facts.Served): // it continues to serve, whatever the next proof says
		on.Next = now.Add(lastPause)
		return
	default:
		on.Next = now.Add(backoff(firstPause, lastPause, on.Failures+1))
		return
	}
	on.Former = ""
	s.Facts = s.Facts.WithServed(on.Mode)
	if r := s.Facts.Refused; r != nil && r.Mode == on.Mode && r.Build == on.Build {
		s.Facts.Refused = nil
	}
}

// recordMove records that on has become Active.
func (s *State) recordMove(verb Verb, on, with *Instance, now time.Time) {
	on.Role, on.Served, on.Err = sdk.Active, on.Synced || verb == Replace && with != nil && with.Served && !on.DiesWithProcess, nil
	on.Proved, on.Drained, on.Flows, on.Since = Unknown, time.Time{}, -1, now
	switch {
	case verb == Promote:
		on.Alone = true
		s.Facts = s.Facts.WithServed(on.Mode)
	case verb == Cut && with != nil:
		with.Served = false
		if with.Up {
			with.startDraining(sdk.Draining, now)
		}
	case verb == Replace && with != nil:
		on.Former = with.Build
		with.Served = false
		if with.DiesWithProcess && with.Up {
			with.startDraining(sdk.Yielded, now)
			return
		}
		id := with.ID
		s.Have = slices.DeleteFunc(s.Have, func(i Instance) bool { return i.ID == id })
	}
}

// startDraining records that i has become Draining or Yielded.
func (i *Instance) startDraining(role sdk.Role, now time.Time) {
	i.Role, i.Drained, i.Flows, i.Served, i.Next = role, now, -1, false, time.Time{}
}

// Synced records that an instance has confirmed the whole state.
func (s *State) Synced(id ID) {
	i := s.instance(id)
	if i == nil || !i.Up {
		return
	}
	i.Synced = true
	i.Served = i.Served || i.Role == sdk.Active
	if i.Role == sdk.Active && i.Alone && i.Former == "" && s.Facts.Served != i.Mode {
		s.Facts = s.Facts.WithServed(i.Mode)
	}
}

// An Observation is the state of a process in session.
type Observation struct {
	Synced bool     // it has confirmed the whole state
	Role   sdk.Role // assigned in this session; zero if none
	Shown  sdk.Role // shown by the kernel; zero if not known
	Busy   bool     // another process holds the writer's lock of its mode
	Err    error    // why it cannot continue; nil if it can

	Progress uint64 // changes whenever it makes progress
}

// Observe records the state of an instance's process. If the role differs from the one that the
// last step should have assigned, the step failed half-way, and Observe corrects the role.
func (s *State) Observe(id ID, o Observation, now time.Time) {
	i := s.instance(id)
	if i == nil || !i.Up {
		return
	}
	i.Shown, i.Busy = o.Shown, o.Busy
	if o.Progress != i.Progress && i.Former == "" { // for an instance that replaced another, overdue counts from its start
		i.Since = now
	}
	i.Progress = o.Progress
	if o.Synced {
		s.Synced(id)
	}
	i.Synced = o.Synced
	if i.Doing == 0 && i.Role != o.Role {
		i.Role = o.Role
		if o.Role == sdk.Draining || o.Role == sdk.Yielded {
			i.startDraining(o.Role, now)
		}
	}
	if o.Err != nil {
		i.Err = o.Err
	}
}

// Ready records that an instance whose process has ended or did not start may start at once.
func (s *State) Ready(id ID) {
	if i := s.instance(id); i != nil && !i.Up {
		i.Next = time.Time{}
	}
}

// Drained records that all connections of a draining instance have ended.
func (s *State) Drained(id ID) {
	if i := s.instance(id); i != nil && i.Up && !i.Drained.IsZero() {
		i.Flows = 0
	}
}

// Instance returns the instance with an ID, and whether it exists.
func (s *State) Instance(id ID) (Instance, bool) {
	if i := s.instance(id); i != nil {
		return *i, true
	}
	return Instance{}, false
}

// Lost records that the process of an instance has ended, or that the connection to it was
// lost.
func (s *State) Lost(id ID, l Loss, now time.Time) {
	if i := s.instance(id); i != nil {
		i.markLost(l, now)
	}
}
