// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

// TestStateApply applies long random sequences of updates and compares each step with a model.
func TestStateApply(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4)) // the same walks each time
	for walk := range 200 {
		dice := make([]byte, 600)
		for i := range dice {
			dice[i] = byte(random.Uint32())
		}
		if err := tell(dice); err != nil {
			t.Fatalf("walk %d: %v", walk, err)
		}
	}
}

// FuzzStateApply searches for a sequence for which the model and State differ.
func FuzzStateApply(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
	f.Add([]byte("set one, err, confirm, and set it again as it was: it must be named"))
	f.Add([]byte("a full, a gap, a full, a node, another node, the first node, and a failure"))
	f.Fuzz(func(t *testing.T, dice []byte) {
		if err := tell(dice); err != nil {
			t.Error(err)
		}
	})
}

// A walk has a host, a dataplane with a State, and a kernel, which act at random. Its model of
// State follows from the comments of State.
type walk struct {
	dice  []byte
	state State

	// The host.
	want     map[Name]Service
	owed     map[Name]bool // changed since the last acknowledgement
	at       uint64        // the revision last acknowledged
	newest   uint64
	fullNext bool

	// The model of State.
	applied     map[Name]Service // last applied
	settled     map[Name]Service // as last confirmed
	failed      map[Name]bool
	unsure      map[Name]bool // applied and not confirmed
	nodeApplied Node
	nodeOwed    bool
	fullOwed    bool

	kernel map[Name]Service // written only as Changes say
}

// tell runs until all dice are used.
func tell(dice []byte) error {
	s := &walk{
		dice: dice, fullNext: true,
		want: map[Name]Service{}, owed: map[Name]bool{},
		applied: map[Name]Service{}, settled: map[Name]Service{}, failed: map[Name]bool{}, unsure: map[Name]bool{},
		kernel: map[Name]Service{},
	}
	for step := 0; len(s.dice) > 0; step++ {
		if err := s.step(); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return nil
}

// draw returns a number below n.
func (s *walk) draw(n int) int {
	if len(s.dice) == 0 {
		return 0
	}
	d := int(s.dice[0]) % n
	s.dice = s.dice[1:]
	return d
}

// names are few, so that changes often concern the same one.
var names = func() []Name {
	var all []Name
	for _, service := range []string{"a", "b", "c", "d", "e"} {
		all = append(all, Name{Namespace: "ns1", Service: service, Protocol: TCP, Family: IPv4})
	}
	return all
}()

func (s *walk) step() error {
	s.change()
	if s.draw(8) == 7 {
		return s.gap()
	}
	u := s.update()
	want := s.expect(u)
	got, err := s.state.Apply(u)
	if err != nil {
		return fmt.Errorf("apply %v: %w", u, err)
	}
	if err := want.compare(got); err != nil {
		return fmt.Errorf("%v: %w", u, err)
	}
	if err := s.agrees(); err != nil {
		return fmt.Errorf("%v: %w", u, err)
	}
	if s.draw(4) == 3 {
		s.err(got)
		return nil
	}
	s.confirm(got, u.To)
	return s.served()
}

// change changes the cluster before the next update.
func (s *walk) change() {
	for range s.draw(3) {
		name := names[s.draw(len(names))]
		if version := s.draw(4); version == 0 {
			delete(s.want, name)
		} else {
			s.want[name] = Service{Name: name, HealthPort: uint16(version)}
		}
		s.owed[name] = true
	}
	for _, name := range names {
		if s.failed[name] && s.draw(3) == 0 {
			s.owed[name] = true // it is sent again
		}
	}
}

// gap applies an update from another revision, which must change nothing.
func (s *walk) gap() error {
	before, services := s.state, maps.Clone(s.state.Services)
	from := s.at + 1 + uint64(s.draw(3))
	if s.fullNext && !s.state.begun {
		from = 0 // no update can continue from an empty state
	}
	_, err := s.state.Apply(Update{From: from, To: from + 1, Delete: names})
	if !errors.Is(err, ErrResync) {
		return fmt.Errorf("an update that leads from %d, at %d, got %v", from, s.at, err)
	}
	if !maps.EqualFunc(services, s.state.Services, Service.Equal) || before.Revision() != s.state.Revision() {
		return fmt.Errorf("a refused update changed the state")
	}
	return nil
}

// update returns the next update of a host. It contains all owed Services and some others.
func (s *walk) update() Update {
	s.newest++
	u := Update{From: s.at, To: s.newest}
	if s.draw(3) == 0 {
		u.Node = &Node{Name: fmt.Sprint("n", s.draw(2))}
	}
	if s.fullNext || s.draw(6) == 0 {
		u.Full, u.From = true, 0
		u.Node = &Node{Name: fmt.Sprint("n", s.draw(2))}
	}
	for _, name := range names {
		svc, exists := s.want[name]
		switch {
		case exists && (u.Full || s.owed[name] || s.draw(9) == 0):
			u.Set = append(u.Set, svc)
		case !exists && !u.Full && (s.owed[name] || s.draw(9) == 0):
			u.Delete = append(u.Delete, name)
		}
	}
	return u
}

// err writes some of the changes to the kernel, and then the whole update fails.
func (s *walk) err(c Changes) {
	for _, change := range sorted(c) {
		if s.draw(2) == 0 {
			s.write(change)
		}
	}
}

// confirm writes the changes except some that fail, and confirms the update.
func (s *walk) confirm(c Changes, to uint64) {
	var failures []Failure
	bad := map[Name]bool{}
	for _, change := range sorted(c) {
		if s.draw(5) == 4 {
			bad[change.Name] = true
			failures = append(failures, Failure{Name: change.Name, Err: errors.New("no")})
			change.After = change.Before // it keeps what served it
		}
		s.write(change)
	}
	if c.Full {
		for name := range s.kernel {
			if _, wanted := s.state.Services[name]; !wanted && !bad[name] {
				delete(s.kernel, name)
			}
		}
	}
	s.state.Confirm(failures...)
	for name := range s.unsure {
		delete(s.unsure, name)
		if s.failed[name] = bad[name]; bad[name] {
			continue
		}
		delete(s.failed, name)
		if svc, ok := s.applied[name]; ok {
			s.settled[name] = svc
		} else {
			delete(s.settled, name)
		}
	}
	s.at, s.nodeOwed, s.fullOwed, s.fullNext = to, false, false, false
	clear(s.owed)
}

func (s *walk) write(c Change) {
	if c.After == nil {
		delete(s.kernel, c.Name)
		return
	}
	s.kernel[c.Name] = *c.After
}
