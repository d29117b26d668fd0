// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"cmp"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A State is all that Plan decides by, but for what is wanted. Its methods note what was observed; they change the
// State and the instances that it has.
type State struct {
	Facts Facts
	Have  []Instance
	last  ID
}

// instance returns the instance with an ID; nil: it is gone.
func (s *State) instance(id ID) *Instance {
	at := slices.IndexFunc(s.Have, func(i Instance) bool { return i.ID == id })
	if at < 0 {
		return nil
	}
	return &s.Have[at]
}

// Begin notes that a step begins, and returns it with the ID of its instance. What Facts says then must be on the disk
// before the step is done.
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
		s.Facts = s.Facts.Comes(on.Mode)
	}
	return step
}

// Refuse notes that w failed, by the step that says so. Its instance may be tried again later.
func (s *State) Refuse(step Step, w Want, now time.Time) {
	on, former := s.instance(step.On), ""
	for _, i := range s.Have {
		if i.ID != on.ID && i.Mode == on.Mode {
			former = i.Build
		}
	}
	s.Facts = s.Facts.Refuses(w, cmp.Or(on.Former, former), step.Why, now.Round(0), step.Next)
	on.Verified, on.Proved, on.Err, on.Next, on.Refused = Unknown, Unknown, nil, time.Time{}, true
}

// Refused is Refused of what the State knows.
func (s *State) Refused(w Want, now time.Time) *Refusal {
	var have []*Instance
	for i := range s.Have {
		have = append(have, &s.Have[i])
	}
	return Refused(w, s.Facts, have, now)
}

// An Outcome is that of a step.
type Outcome struct {
	Err    error
	Answer Answer        // of Verify and Prove
	Pause  time.Duration // after an error
	Dies   bool          // of Start: DiesWithProcess
	Apart  bool          // of Start: External
}

// End notes how a step ended.
func (s *State) End(step Step, o Outcome, now time.Time) {
	on, with := s.instance(step.On), s.instance(step.With)
	if with != nil {
		with.Doing = 0
	}
	if on == nil {
		return
	}
	on.Doing = 0
	if o.Err != nil && step.Do != Verify && step.Do != Prove {
		on.failed(o, now)
		return
	}
	switch step.Do {
	case Start:
		role := step.Role
		if role == sdk.Active && !o.Dies {
			role = 0
		}
		on.Up, on.Synced, on.DiesWithProcess, on.External, on.Role = true, false, o.Dies, o.Apart, role
		on.Verified, on.Proved, on.Flows, on.Drained = Unknown, Unknown, -1, time.Time{}
		on.Next = time.Time{}
		on.Since, on.Err, on.New, on.Alone = now, nil, false, role == sdk.Active // that is planned only if nothing else serves
	case Verify:
		on.Verified, on.Err = o.Answer, o.Err
		on.Next = now.Add(o.Pause)
	case Prove:
		s.proved(on, o, now)
	case Cut, Promote, Replace:
		s.moved(step.Do, on, with, now)
	case Drain:
		on.drains(sdk.Draining, now)
	case Cleanup:
		on.Cleaned, on.Served = true, false
		s.Facts = s.Facts.Cleaned(on.Mode)
	case Stop:
		if on.New {
			s.Facts = s.Facts.Cleaned(on.Mode)
		}
		if on.Refused {
			s.Facts.Refused = s.Facts.Refused.removed(on, now)
		}
		s.Have = slices.DeleteFunc(s.Have, func(i Instance) bool { return i.ID == step.On })
	}
}

func (i *Instance) failed(o Outcome, now time.Time) {
	i.Err, i.Next = o.Err, now.Add(o.Pause)
	i.Failures++
}

func (s *State) proved(on *Instance, o Outcome, now time.Time) {
	on.Proved, on.Err = o.Answer, o.Err
	if o.Answer != Yes && o.Answer != Cannot {
		on.Next = now.Add(o.Pause)
		return
	}
	on.Former = ""
	s.Facts = s.Facts.Serves(on.Mode)
	if r := s.Facts.Refused; r != nil && r.Mode == on.Mode && r.Build == on.Build {
		s.Facts.Refused = nil
	}
}

// moved notes that on has become Active.
func (s *State) moved(verb Verb, on, with *Instance, now time.Time) {
	on.Role, on.Served, on.Err = sdk.Active, on.Synced || verb == Replace && with != nil && with.Served && !on.DiesWithProcess, nil
	on.Proved, on.Drained, on.Flows, on.Since = Unknown, time.Time{}, -1, now
	switch {
	case verb == Promote:
		on.Alone = true
		s.Facts = s.Facts.Serves(on.Mode)
	case verb == Cut && with != nil:
		with.Served = false
		if with.Up {
			with.drains(sdk.Draining, now)
		}
	case verb == Replace && with != nil:
		on.Former = with.Build
		with.Served = false
		if with.DiesWithProcess && with.Up {
			with.drains(sdk.Yielded, now)
			return
		}
		id := with.ID
		s.Have = slices.DeleteFunc(s.Have, func(i Instance) bool { return i.ID == id })
	}
}

func (i *Instance) drains(role sdk.Role, now time.Time) {
	i.Role, i.Drained, i.Flows, i.Served, i.Next = role, now, -1, false, time.Time{}
}

// Synced notes that an instance has confirmed everything.
func (s *State) Synced(id ID) {
	i := s.instance(id)
	if i == nil || !i.Up {
		return
	}
	i.Synced = true
	i.Served = i.Served || i.Role == sdk.Active
	if i.Role == sdk.Active && i.Alone && i.Former == "" && s.Facts.Served != i.Mode {
		s.Facts = s.Facts.Serves(i.Mode)
	}
}

// An Observation is what a process in session is found to be, or what was read from it.
type Observation struct {
	Synced bool     // it has confirmed everything
	Role   sdk.Role // that it was given in this session; zero: none
	Shown  sdk.Role // that the kernel shows; zero: that is not known
	Busy   bool     // another process has the writer's lock of its mode
	Err    error    // why it cannot get on; nil: it can

	Progress uint64 // another number whenever its work has made progress
}

// Observe notes what the process of an instance is found to be. A role that differs from the one that the last step
// was to give is of a step that failed half-way.
func (s *State) Observe(id ID, o Observation, now time.Time) {
	i := s.instance(id)
	if i == nil || !i.Up {
		return
	}
	i.Shown, i.Busy = o.Shown, o.Busy
	if o.Progress != i.Progress && i.Former == "" { // what replaced another one has its limit anyway
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
			i.drains(o.Role, now)
		}
	}
	if o.Err != nil {
		i.Err = o.Err
	}
}

// Ready notes that the process of an instance, which has ended or did not start, may be started again.
func (s *State) Ready(id ID) {
	if i := s.instance(id); i != nil && !i.Up {
		i.Next = time.Time{}
	}
}

// Drained notes that an instance has none left of the connections that it had when it began to drain.
func (s *State) Drained(id ID) {
	if i := s.instance(id); i != nil && i.Up && !i.Drained.IsZero() {
		i.Flows = 0
	}
}

// Instance returns the instance with an ID, and whether it is there.
func (s *State) Instance(id ID) (Instance, bool) {
	if i := s.instance(id); i != nil {
		return *i, true
	}
	return Instance{}, false
}

// Lost notes that the process of an instance has ended, or that the connection to it was lost.
func (s *State) Lost(id ID, err error, pause time.Duration, now time.Time) {
	i := s.instance(id)
	if i == nil {
		return
	}
	i.Up, i.Synced, i.Busy, i.Role, i.Since = false, false, false, 0, now
	i.Verified, i.Proved, i.Flows, i.Shown = Unknown, Unknown, -1, 0
	i.Served = i.Served && !i.DiesWithProcess
	i.failed(Outcome{Err: err, Pause: pause}, now)
}
