// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestStateApply applies long random sequences of updates.
func TestStateApply(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4)) // the same walks each time
	for walk := range 200 {
		dice := make([]byte, 600)
		for i := range dice {
			dice[i] = byte(random.Uint32())
		}
		if err := walkBy(dice); err != nil {
			t.Fatalf("walk %d: %v", walk, err)
		}
	}
}

// A walk has a host, a dataplane with a State, and a kernel, which act at random.
type walk struct {
	dice   []byte
	state  State
	kernel map[Name]Service // written only as Changes say
	node   string           // as the kernel knows it

	// The host.
	want   map[Name]Service
	owed   map[Name]bool // changed since the last acknowledgement
	failed map[Name]bool // reported as failed
	at     uint64        // the revision last acknowledged
	newest uint64
	begun  bool

	// What follows from the comments of State.
	applied map[Name]Service // last applied
	settled map[Name]Service // last confirmed
	pending bool             // an Apply was not confirmed
	full    bool             // a Full was not confirmed
}

// walkBy walks until all dice are used.
func walkBy(dice []byte) error {
	w := &walk{
		dice: dice, kernel: map[Name]Service{}, want: map[Name]Service{}, owed: map[Name]bool{}, failed: map[Name]bool{},
		applied: map[Name]Service{}, settled: map[Name]Service{},
	}
	for step := 0; len(w.dice) > 0; step++ {
		if err := w.step(); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return nil
}

// draw returns a number below n.
func (w *walk) draw(n int) int {
	if len(w.dice) == 0 {
		return 0
	}
	d := int(w.dice[0]) % n
	w.dice = w.dice[1:]
	return d
}

// names are few, so that changes often concern the same one.
var names = []Name{svc("a", 0).Name, svc("b", 0).Name, svc("c", 0).Name, svc("d", 0).Name, svc("e", 0).Name}

func (w *walk) step() error {
	for range w.draw(3) {
		name := names[w.draw(len(names))]
		w.owed[name] = true
		if version := w.draw(4); version == 0 {
			delete(w.want, name)
		} else {
			w.want[name] = Service{Name: name, HealthPort: uint16(version)}
		}
	}
	for _, name := range names {
		w.owed[name] = w.owed[name] || w.failed[name] && w.draw(3) == 0 // it is sent again
	}
	if w.draw(8) == 7 {
		return w.gap()
	}
	u := w.update()
	if u.Full {
		clear(w.applied)
	}
	for _, s := range u.Set {
		w.applied[s.Name] = s
	}
	for _, name := range u.Delete {
		delete(w.applied, name)
	}
	c, err := w.state.Apply(u)
	if err == nil {
		err = w.check(u, c)
	}
	if err == nil {
		err = w.follow(u, c, w.draw(4) == 3)
	}
	if err != nil {
		return fmt.Errorf("%+v: %w", u, err)
	}
	return nil
}

// gap applies an update from another revision, which must change nothing.
func (w *walk) gap() error {
	services := maps.Clone(w.state.Services)
	from := w.at + 1 + uint64(w.draw(3))
	if !w.begun {
		from = 0 // no update can continue from an empty state
	}
	_, err := w.state.Apply(Update{From: from, To: from + 1, Delete: names})
	if !errors.Is(err, ErrResync) || !maps.EqualFunc(services, w.state.Services, Service.Equal) || w.state.Revision() != w.at {
		return fmt.Errorf("an update that leads from %d, at %d, got %v, and the state is %+v", from, w.at, err, w.state)
	}
	return nil
}

// update returns the next update of a host. It contains all owed Services and some others.
func (w *walk) update() Update {
	w.newest++
	u := Update{From: w.at, To: w.newest}
	if !w.begun || w.draw(6) == 0 {
		u.Full, u.From = true, 0
	}
	if u.Full || w.draw(3) == 0 {
		u.Node = &Node{Name: fmt.Sprint("n", w.draw(2))}
	}
	for _, name := range names {
		svc, exists := w.want[name]
		switch {
		case exists && (u.Full || w.owed[name] || w.draw(9) == 0):
			u.Set = append(u.Set, svc)
		case !exists && !u.Full && (w.owed[name] || w.draw(9) == 0):
			u.Delete = append(u.Delete, name)
		}
	}
	return u
}

// check checks the state and the changes of an update. That no change is missing is checked by what the
// kernel serves in the end.
func (w *walk) check(u Update, c Changes) error {
	w.full = w.full || u.Full
	switch {
	case !maps.EqualFunc(w.state.Services, w.applied, Service.Equal) || w.state.Revision() != w.at:
		return fmt.Errorf("the state is %+v, and should have %v", w.state, w.applied)
	case u.Node != nil && w.state.Node.Name != u.Node.Name:
		return fmt.Errorf("the state has node %s", w.state.Node.Name)
	case c.Full != w.full || c.Node && u.Node == nil && !w.pending:
		return fmt.Errorf("changes %+v of a full state: %t", c, w.full)
	}
	seen := map[Name]bool{}
	for _, change := range c.Services {
		before, after := show(w.settled, change.Name), show(w.applied, change.Name)
		if named := show(valueOf(change.Before), change.Name) + " to " + show(valueOf(change.After), change.Name); named != before+" to "+after {
			return fmt.Errorf("%s changes from %s, and should from %s to %s", change.Name, named, before, after)
		}
		if seen[change.Name] || before == after && !w.pending {
			return fmt.Errorf("%s is named twice, or without a change", change.Name)
		}
		seen[change.Name] = true
	}
	return nil
}

func valueOf(s *Service) map[Name]Service {
	if s == nil {
		return nil
	}
	return map[Name]Service{s.Name: *s}
}

func show(services map[Name]Service, name Name) string {
	if s, there := services[name]; there {
		return fmt.Sprint("version ", s.HealthPort)
	}
	return "nothing"
}

// follow makes the kernel follow the changes: some of them, after which the whole update fails, or
// all but those of Services that fail.
func (w *walk) follow(u Update, c Changes, fails bool) error {
	slices.SortFunc(c.Services, func(a, b Change) int { return a.Name.Compare(b.Name) }) // the same for the same dice
	if c.Node {
		w.node = w.state.Node.Name
		if fails {
			w.node = "unknown"
		}
	}
	var failures []Failure
	bad := map[Name]bool{}
	for _, change := range c.Services {
		switch {
		case fails && w.draw(2) == 0:
			continue
		case !fails && w.draw(5) == 4:
			bad[change.Name] = true
			failures = append(failures, Failure{Name: change.Name, Err: errors.New("no")})
			change.After = change.Before // it keeps what served it
		}
		if change.After == nil {
			delete(w.kernel, change.Name)
		} else {
			w.kernel[change.Name] = *change.After
		}
	}
	if w.pending = fails; fails {
		return nil
	}
	if c.Full {
		maps.DeleteFunc(w.kernel, func(name Name, _ Service) bool { _, wanted := w.applied[name]; return !wanted && !bad[name] })
	}
	w.state.Confirm(failures...)
	w.at, w.begun, w.full = u.To, true, false
	clear(w.owed)
	for _, change := range c.Services {
		if w.failed[change.Name] = bad[change.Name]; bad[change.Name] {
			continue
		}
		delete(w.settled, change.Name)
		if change.After != nil {
			w.settled[change.Name] = *change.After
		}
	}
	return w.served()
}

// served checks that the kernel serves what is wanted, or for a failed Service what was confirmed.
func (w *walk) served() error {
	if w.state.Revision() != w.at || w.node != w.state.Node.Name {
		return fmt.Errorf("confirmed %d on %s, and the state is at %d on %s", w.at, w.node, w.state.Revision(), w.state.Node.Name)
	}
	for _, name := range names {
		want := show(w.want, name)
		if w.failed[name] {
			want = show(w.settled, name)
		}
		if got := show(w.kernel, name); got != want {
			return fmt.Errorf("%s is served by %s, and should be by %s", name, got, want)
		}
	}
	return nil
}
