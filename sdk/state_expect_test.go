// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"fmt"
	"maps"
	"slices"
)

// expected are the Changes of one update, in a form that can be compared.
type expected struct {
	full, node bool
	services   map[Name]string
}

// expect applies u to the model, and returns the changes that State should return.
func (s *walk) expect(u Update) expected {
	named := map[Name]bool{}
	unsure := maps.Clone(s.unsure)
	if u.Full {
		for name := range s.applied {
			named[name] = true
		}
		for name := range s.failed {
			named[name] = true
		}
		clear(s.applied)
	}
	for _, svc := range u.Set {
		named[svc.Name], s.applied[svc.Name] = true, svc
	}
	for _, name := range u.Delete {
		named[name] = true
		delete(s.applied, name)
	}
	for name := range named {
		s.unsure[name] = true
	}
	s.fullOwed = s.fullOwed || u.Full
	if u.Node != nil {
		s.nodeOwed = s.nodeOwed || u.Full || u.Node.Name != s.nodeApplied.Name
		s.nodeApplied = *u.Node
	}
	e := expected{full: s.fullOwed, node: s.nodeOwed, services: map[Name]string{}}
	for name := range s.unsure {
		before, had := s.settled[name]
		after, has := s.applied[name]
		same := had == has && before.Equal(after)
		if unsure[name] || !same {
			e.services[name] = show(before, had) + " to " + show(after, has)
		}
	}
	return e
}

func show(s Service, there bool) string {
	if !there {
		return "nothing"
	}
	return fmt.Sprint("version ", s.HealthPort)
}

func (e expected) compare(c Changes) error {
	got := expected{full: c.Full, node: c.Node, services: map[Name]string{}}
	value := func(s *Service) string {
		if s == nil {
			return "nothing"
		}
		return show(*s, true)
	}
	for _, change := range c.Services {
		if got.services[change.Name] != "" {
			return fmt.Errorf("%s is named twice", change.Name)
		}
		got.services[change.Name] = value(change.Before) + " to " + value(change.After)
	}
	if e.full != got.full || e.node != got.node || !maps.Equal(e.services, got.services) {
		return fmt.Errorf("changes are %+v, and should be %+v", got, e)
	}
	return nil
}

// agrees compares the content of State with the model.
func (s *walk) agrees() error {
	if !maps.EqualFunc(s.state.Services, s.applied, Service.Equal) {
		return fmt.Errorf("the state has %v, and should have %v", s.state.Services, s.applied)
	}
	if s.state.Node.Name != s.nodeApplied.Name {
		return fmt.Errorf("the state has node %q, and should have %q", s.state.Node.Name, s.nodeApplied.Name)
	}
	if s.state.Revision() != s.at {
		return fmt.Errorf("at revision %d, and should be at %d", s.state.Revision(), s.at)
	}
	return nil
}

func sorted(c Changes) []Change {
	return slices.SortedFunc(slices.Values(c.Services), func(a, b Change) int { return a.Name.Compare(b.Name) })
}

// served checks that a kernel which follows the changes serves the desired Services.
func (s *walk) served() error {
	if s.state.Revision() != s.at {
		return fmt.Errorf("confirmed %d, at revision %d", s.at, s.state.Revision())
	}
	for _, name := range names {
		want, wanted := s.want[name]
		if s.failed[name] {
			want, wanted = s.settled[name], s.settled[name].Name == name
		}
		got, served := s.kernel[name]
		if wanted != served || !got.Equal(want) {
			return fmt.Errorf("%s is served by %s, and should be by %s", name, show(got, served), show(want, wanted))
		}
	}
	return nil
}
