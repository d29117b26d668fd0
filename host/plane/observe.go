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
		s.Have = append(s.Have, Instance{ID: step.On, Mode: step.Mode, Flows: -1, Since: now})
	}
	on := s.instance(step.On)
	on.Doing, on.Next = step.Do, time.Time{}
	if with := s.instance(step.With); with != nil {
		with.Doing = step.Do
	}
	if step.Do == Start {
		on.Build = build
		s.Facts = s.Facts.Comes(on.Mode)
	}
	return step
}

// Refuse notes that w failed, by the step that says so. Its instance may be tried again later.
func (s *State) Refuse(step Step, w Want) {
	on, former := s.instance(step.On), ""
	for _, i := range s.Have {
		if i.ID != on.ID && i.Mode == on.Mode {
			former = i.Build
		}
	}
	s.Facts = s.Facts.Refuses(w, cmp.Or(on.Former, former), step.Why, step.Next)
	on.Verified, on.Proved, on.Err = Unknown, Unknown, nil
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
		on.Since, on.Err = now, nil
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
	i.Role, i.Drained, i.Flows, i.Served = role, now, -1, false
}

// Synced notes that an instance has confirmed everything.
func (s *State) Synced(id ID) {
	if i := s.instance(id); i != nil && i.Up {
		i.Synced = true
		i.Served = i.Served || i.Role == sdk.Active
	}
}

// Lost notes that the process of an instance has ended, or that the connection to it was lost.
func (s *State) Lost(id ID, err error, pause time.Duration, now time.Time) {
	i := s.instance(id)
	if i == nil {
		return
	}
	i.Up, i.Synced, i.Role, i.Since = false, false, 0, now
	i.Verified, i.Proved, i.Flows, i.Shown = Unknown, Unknown, -1, 0
	i.Served = i.Served && !i.DiesWithProcess
	i.failed(Outcome{Err: err, Pause: pause}, now)
}
