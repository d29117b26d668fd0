// SPDX-License-Identifier: Apache-2.0

package sdk

import "fmt"

// A State is everything that a dataplane should serve, accumulated from Updates. The zero State
// is the state before the first Update of a session. Read its fields, but let only Apply and
// Confirm change them. A State is not safe for concurrent use.
//
// A dataplane whose work should be proportional to a change calls, in Sync:
//
//	changes, err := d.state.Apply(update)
//	if err != nil {
//		return sdk.Result{}, err // ErrResync: the host sends a Full
//	}
//	… make the kernel follow changes …
//	d.state.Confirm(failed...)
//
// If the middle part fails, return without Confirm. The next Apply then reports again
// everything that the kernel may not have followed.
type State struct {
	Node     Node
	Services map[Name]Service

	// Kept names Services that this node cannot serve, so the function of Whole does not
	// receive them and must leave them as they are. Only Whole sets Kept.
	Kept map[Name]bool

	begun     bool               // a Full has been confirmed
	revision  uint64             // last confirmed revision
	applied   uint64             // last applied revision
	unsettled map[Name]unsettled // applied since the last Confirm
	failed    map[Name]*Service  // for failed Services, the value that is served instead; nil if none
	full      bool               // a Full was applied since the last Confirm
	node      bool               // a changed Node was applied since the last Confirm
}

// unsettled is a Service that the kernel may not have followed yet.
type unsettled struct {
	before  *Service // value last confirmed; nil if none
	applied bool     // by an Apply that was not confirmed, so the kernel's state is unknown
}

// Changes are the changes of one Update and of those before it that were not confirmed.
type Changes struct {
	Full     bool     // compare everything with what exists, not only the Services below
	Node     bool     // State.Node has changed
	Services []Change // one for each changed Service, in no order
}

// A Change is one Service before and after. Before is the value last confirmed, nil if there
// was none; After is nil if the Service was deleted.
type Change struct {
	Name          Name
	Before, After *Service
}

// Revision returns the last confirmed revision, from which the next Update must lead.
func (s *State) Revision() uint64 { return s.revision }

// Apply applies u and returns the changes. It returns ErrResync, and changes nothing, if u does
// not lead from the last confirmed revision.
func (s *State) Apply(u Update) (Changes, error) {
	if !u.Full && (!s.begun || u.From != s.revision) {
		return Changes{}, fmt.Errorf("update leads from revision %d, the state is at %d: %w", u.From, s.revision, ErrResync)
	}
	s.prepare(len(u.Set))
	if u.Full {
		s.full = true
		s.dropAllBut(u)
	}
	if u.Node != nil {
		s.node = s.node || u.Full || !s.Node.Equal(*u.Node)
		s.Node = *u.Node
	}
	for _, name := range u.Delete {
		s.setService(name, nil)
	}
	for i := range u.Set {
		s.setService(u.Set[i].Name, &u.Set[i])
	}
	s.applied = u.To
	return s.changes(), nil
}

// Confirm records that the kernel has followed everything applied so far, except the failed
// Services. Those are served as before, and Apply reports them again once an update contains
// them. The next Update leads from here.
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
	s.unsettled = make(map[Name]unsettled) // a new map, because iterating over a map costs as much as its largest size ever
	s.full, s.node = false, false
}

func (s *State) prepare(services int) {
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

// dropAllBut deletes the Services that a Full does not name.
func (s *State) dropAllBut(u Update) {
	named := make(map[Name]bool, len(u.Set))
	for i := range u.Set {
		named[u.Set[i].Name] = true
	}
	for name := range s.Services {
		if !named[name] {
			s.setService(name, nil)
		}
	}
	for name := range s.failed {
		if !named[name] {
			s.setService(name, nil)
		}
	}
}

// setService sets or deletes a Service, and remembers the value last confirmed.
func (s *State) setService(name Name, svc *Service) {
	if _, ok := s.unsettled[name]; !ok {
		s.unsettled[name] = unsettled{before: s.confirmed(name)}
	}
	if svc == nil {
		delete(s.Services, name)
		return
	}
	s.Services[name] = *svc
}

// confirmed returns the value that the kernel serves, or nil.
func (s *State) confirmed(name Name) *Service {
	if before, ok := s.failed[name]; ok {
		return before
	}
	return s.service(name)
}

// service returns a copy of the current value of name, or nil.
func (s *State) service(name Name) *Service {
	now, ok := s.Services[name]
	if !ok {
		return nil
	}
	found := now // declared here, so that a miss does not allocate
	return &found
}

// changes returns what was applied and not confirmed. It omits Services that changed back to
// their confirmed value, unless an earlier Apply was not confirmed: then nobody knows how far
// the kernel followed.
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
