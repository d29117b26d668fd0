// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// two are the scenarios that most checks go to and fro between.
func (t *trial) two() (a, b Scenario, err error) {
	if a, err = t.scenario("cluster-ip"); err != nil {
		return a, b, err
	}
	b, err = t.scenario("named-target-port")
	for i := range b.Services { // other than a's in name and address, so that both can stand
		b.Services[i].Name.Namespace = "ns9"
	}
	return a, b, err
}

func fullTwice(t *trial) error {
	a, _, err := t.two()
	if err != nil {
		return err
	}
	for range 2 {
		if err := t.serve(a); err != nil {
			return err
		}
		if err := t.serves(a); err != nil {
			return err
		}
	}
	return nil
}

func fullDropsStale(t *trial) error {
	a, b, err := t.two()
	if err != nil {
		return err
	}
	if err := t.serve(a); err != nil {
		return err
	}
	if err := t.sync(b.Update(0)); err != nil {
		return err
	}
	return t.serves(b)
}

func deltaTwice(t *trial) error {
	a, _, err := t.two()
	if err != nil {
		return err
	}
	empty := a
	empty.Services = nil
	if err := t.serve(empty); err != nil {
		return err
	}
	for range 2 {
		if err := t.sync(sdk.Update{Set: a.Services}); err != nil {
			return err
		}
		if err := t.serves(a); err != nil {
			return err
		}
	}
	return nil
}

func deleteOfNothing(t *trial) error {
	a, _, err := t.two()
	if err != nil {
		return err
	}
	if err := t.serve(a); err != nil {
		return err
	}
	nobody := sdk.Name{Namespace: "ns1", Service: "never", Protocol: sdk.TCP, Family: sdk.IPv4}
	if err := t.sync(sdk.Update{Delete: []sdk.Name{nobody}}); err != nil {
		return err
	}
	return t.serves(a)
}

// keepKeeps: what is set aside stays as it is served, by a delta and by a Full,
// also in a session that never learned what it is.
func keepKeeps(t *trial) error {
	a, b, err := t.two()
	if err != nil {
		return err
	}
	if err := t.serve(a); err != nil {
		return err
	}
	keep := []sdk.Name{a.Services[0].Name}
	without := a.Update(0)
	without.Set, without.Keep = nil, keep
	if err := t.sync(sdk.Update{Keep: keep}); err != nil {
		return err
	}
	if err := t.serves(a); err != nil {
		return fmt.Errorf("kept by a delta: %w", err)
	}
	if err := t.sync(without); err != nil {
		return err
	}
	if err := t.serves(a); err != nil {
		return fmt.Errorf("kept by a Full: %w", err)
	}
	if err := t.configure(); err != nil {
		return err
	}
	if err := t.sync(without); err != nil {
		return err
	}
	if err := t.serves(a); err != nil {
		return fmt.Errorf("kept by the first Full of a session: %w", err)
	}
	if err := t.sync(b.Update(0)); err != nil {
		return err
	}
	if err := t.serves(b); err != nil {
		return fmt.Errorf("no longer kept: %w", err)
	}
	return nil
}

// steps is how far the random walk goes.
const steps = 120

// randomWalk goes from any scenario's state to any other by deltas, and compares
// on its way; at the end a Full of the same must change nothing.
func randomWalk(t *trial) error {
	var states []Scenario
	for _, s := range Scenarios() {
		if len(s.Lacks(t.description)) == 0 {
			s, _ = t.place(s)
			states = append(states, s)
		}
	}
	if len(states) < 2 {
		return excused{"too few scenarios that it claims the features of"}
	}
	at := Scenario{Node: states[0].Node}
	if err := t.serve(at); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(1, 2)) // the same walk each time
	for i := range steps {
		next := states[random.IntN(len(states))]
		if err := t.sync(delta(at, next)); err != nil {
			return fmt.Errorf("step %d, %s to %s: %w", i, at.Name, next.Name, err)
		}
		if i%6 == 5 {
			if err := t.serves(next); err != nil {
				return fmt.Errorf("step %d, %s to %s: %w", i, at.Name, next.Name, err)
			}
		}
		at = next
	}
	if err := t.sync(at.Update(0)); err != nil {
		return err
	}
	return t.serves(at)
}

// delta leads from a to b.
func delta(a, b Scenario) sdk.Update {
	var u sdk.Update
	if !a.Node.Equal(b.Node) {
		u.Node = &b.Node
	}
	for _, s := range b.Services {
		if !slices.ContainsFunc(a.Services, s.Equal) {
			u.Set = append(u.Set, s)
		}
	}
	for _, s := range a.Services {
		if !slices.ContainsFunc(b.Services, func(o sdk.Service) bool { return o.Name == s.Name }) {
			u.Delete = append(u.Delete, s.Name)
		}
	}
	return u
}

// frontendChangesOwner: an address goes from one Service to another in one
// update, and back, whichever of the two is first in any order.
func frontendChangesOwner(t *trial) error {
	a, err := t.scenario("cluster-ip")
	if err != nil {
		return err
	}
	for _, namespace := range []string{"aa", "zz", "aa"} {
		b := a
		b.Services = slices.Clone(a.Services)
		b.Packets = slices.Clone(a.Packets)
		b.Services[0].Name.Namespace = namespace
		if err := t.serve(a); err != nil {
			return err
		}
		if err := t.sync(delta(a, b)); err != nil {
			return err
		}
		if err := t.serves(b); err != nil {
			return fmt.Errorf("from %s to %s: %w", a.Services[0].Name, b.Services[0].Name, err)
		}
		if err := settledOrNoGround(t.packets(b)); err != nil {
			return fmt.Errorf("from %s to %s: %w", a.Services[0].Name, b.Services[0].Name, err)
		}
	}
	return nil
}
