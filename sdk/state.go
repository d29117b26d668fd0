// SPDX-License-Identifier: Apache-2.0

package sdk

import "fmt"

// A State is everything a dataplane is to serve, put together from Updates. The
// zero State is the one before a session's first Update. Its fields are there to
// be read; only Apply and Confirm change them. A State is not safe for
// concurrent use.
//
// A dataplane that wants to do work in proportion to a change calls, in Sync:
//
//	changes, err := d.state.Apply(update)
//	if err != nil {
//		return sdk.Result{}, err // ErrResync: the host sends a Full
//	}
//	… make the kernel follow changes …
//	d.state.Confirm(failed...)
//
// When the middle part errs it returns without Confirm, and the next Apply
// reports again whatever the kernel may not have followed.
type State struct {
	Node     Node
	Services map[Name]Service

	// Kept names Services that this node cannot serve, and that a function of Whole is
	// therefore not given: it leaves them as they are served. Only Whole sets it.
	Kept map[Name]bool

	begun     bool               // a Full has been confirmed
	revision  uint64             // the last one confirmed
	applied   uint64             // the last one applied
	unsettled map[Name]unsettled // what was applied since
	failed    map[Name]*Service  // the values that serve, of what failed; nil: none
	full      bool               // a Full was applied since
	node      bool               // a Node was applied since
}

// unsettled is a Service that the kernel may not follow yet.
type unsettled struct {
	before  *Service // as last confirmed; nil: none
	applied bool     // by an Apply that was not confirmed: it is not known how far the kernel is
}

// Changes are what one Update, and those before it that were not confirmed,
// change in a State.
type Changes struct {
	Full     bool     // everything is to be checked against what is there, not only Services below
	Node     bool     // State.Node is another
	Services []Change // one for each Service that is another, in no order
}

// A Change is one Service before and after. Before is the value last confirmed,
// nil when there was none; After is nil when the Service is gone.
type Change struct {
	Name          Name
	Before, After *Service
}

// Revision returns the revision last confirmed: what the next Update must lead from.
func (s *State) Revision() uint64 { return s.revision }

// Apply takes u in and says what is changed by it. It returns ErrResync, and
// changes nothing, when u does not lead from the revision last confirmed.
func (s *State) Apply(u Update) (Changes, error) {
	if !u.Full && (!s.begun || u.From != s.revision) {
		return Changes{}, fmt.Errorf("update leads from revision %d, the state is at %d: %w", u.From, s.revision, ErrResync)
	}
	s.begin(len(u.Set))
	if u.Full {
		s.full = true
		s.dropAllBut(u)
	}
	if u.Node != nil {
		s.node = s.node || u.Full || !s.Node.Equal(*u.Node)
		s.Node = *u.Node
	}
	for _, name := range u.Delete {
		s.put(name, nil)
	}
	for i := range u.Set {
		s.put(u.Set[i].Name, &u.Set[i])
	}
	s.applied = u.To
	return s.changes(), nil
}

// Confirm says that the kernel follows everything applied so far, but for what
// failed: that is served as before, and Apply names it again once an update does
// it again. The next Update leads from here.
func (s *State) Confirm(failed ...Failure) {
	s.begun = s.begun || s.full
	s.revision = s.applied
	for _, f := range failed {
		if u, ok := s.unsettled[f.Name]; ok {
			s.failed[f.Name] = u.before
			delete(s.unsettled, f.Name)
		}
	}
	for name := range s.unsettled {
		delete(s.failed, name)
	}
	s.unsettled = make(map[Name]unsettled) // small again: to walk a map costs its largest size
	s.full, s.node = false, false
}

func (s *State) begin(services int) {
	if s.Services == nil {
		s.Services = make(map[Name]Service, services)
		s.unsettled = make(map[Name]unsettled, services)
		s.failed = make(map[Name]*Service)
	}
	for name, u := range s.unsettled {
		u.applied = true
		s.unsettled[name] = u
	}
}

// dropAllBut deletes what a Full does not name.
func (s *State) dropAllBut(u Update) {
	named := make(map[Name]bool, len(u.Set))
	for i := range u.Set {
		named[u.Set[i].Name] = true
	}
	for name := range s.Services {
		if !named[name] {
			s.put(name, nil)
		}
	}
	for name := range s.failed {
		if !named[name] {
			s.put(name, nil)
		}
	}
}

// put sets one Service, or deletes it, and remembers the value last confirmed.
func (s *State) put(name Name, svc *Service) {
	if _, ok := s.unsettled[name]; !ok {
		s.unsettled[name] = unsettled{before: s.confirmed(name)}
	}
	if svc == nil {
		delete(s.Services, name)
		return
	}
	s.Services[name] = *svc
}

// confirmed returns the value that the kernel follows; nil: none.
func (s *State) confirmed(name Name) *Service {
	if before, ok := s.failed[name]; ok {
		return before
	}
	return s.service(name)
}

// service returns a copy of what is under name now; nil: nothing.
func (s *State) service(name Name) *Service {
	now, ok := s.Services[name]
	if !ok {
		return nil
	}
	found := now // only what is found goes to the heap
	return &found
}

// changes lists what was applied and not confirmed. The first time, what came
// back to its old value is left out; after a failure it is not known how far the
// kernel followed, so it is in them too.
func (s *State) changes() Changes {
	c := Changes{Full: s.full, Node: s.node, Services: make([]Change, 0, len(s.unsettled))}
	for name, u := range s.unsettled {
		change := Change{Name: name, Before: u.before, After: s.service(name)}
		if u.applied || !change.same() {
			c.Services = append(c.Services, change)
		}
	}
	return c
}

func (c Change) same() bool {
	if c.Before == nil || c.After == nil {
		return c.Before == c.After
	}
	return c.Before.Equal(*c.After)
}
