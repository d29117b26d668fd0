// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// packetsAreSent is there so that no dataplane conforms without one packet.
func packetsAreSent(t *trial) error {
	s, err := t.scenario("cluster-ip")
	if err != nil {
		return err
	}
	if len(s.Packets) == 0 {
		return notRun{"the ground can express none of the packets"}
	}
	if err := t.serve(s); err != nil {
		return err
	}
	return t.packets(s)
}

// scenarioChecks are one check for each scenario; the outcome of its packets is
// the contract's lines 1 and 2.
func scenarioChecks() []check {
	var all []check
	for _, s := range Scenarios() {
		all = append(all, check{name: "C02/scenario/" + s.Name, run: func(t *trial) error { return t.show(s) }})
	}
	return all
}

// show serves one scenario and sends its packets.
func (t *trial) show(s Scenario) error {
	if lacks := s.Lacks(t.description); len(lacks) > 0 {
		return excused{"does not claim " + join(lacks)}
	}
	if t.subject.Ground == nil {
		return notRun{"no ground to send packets on"}
	}
	s, leftOut := t.place(s)
	if len(s.Packets) == 0 {
		return excused{"this ground can express none of the packets: " + strings.Join(leftOut, "; ")}
	}
	if err := t.serve(s); err != nil {
		return err
	}
	return t.packets(s)
}

// affinitySticks: one client on one frontend keeps its endpoint.
func affinitySticks(t *trial) error {
	return t.sticks(func(s Scenario) []Packet {
		p := s.Packets[0]
		return []Packet{p, p, p, p, p, p, p, p, p, p, p, p}
	})
}

// affinityOverFrontends: the client keeps it also when it calls by another
// address of the Service.
func affinityOverFrontends(t *trial) error {
	err := t.sticks(func(s Scenario) []Packet {
		p := s.Packets[0]
		q := p
		q.To = s.Packets[1].To
		return []Packet{p, q, q, q, p, q, p, q, q, p, q}
	})
	if errors.As(err, new(excused)) || errors.As(err, new(notRun)) {
		return err
	}
	if limited(t.description, sdk.LimitAffinityPerFrontend) {
		return byLimits{[]sdk.Limit{sdk.LimitAffinityPerFrontend}}
	}
	return err
}

func (t *trial) sticks(packets func(Scenario) []Packet) error {
	s, err := t.scenario("affinity")
	if err != nil {
		return err
	}
	if err := t.serve(s); err != nil {
		return err
	}
	stage, err := t.stage(s)
	if err != nil {
		return err
	}
	defer stage.Close()
	var seen []string
	for _, p := range packets(s) {
		a, err := stage.Send(t.ctx, p)
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		if a.Verdict != sdk.Forward {
			return fmt.Errorf("%s: found %s", p.Text, a)
		}
		seen = append(seen, a.Endpoint.String())
	}
	slices.Sort(seen)
	if used := slices.Compact(seen); len(used) > 1 {
		return fmt.Errorf("one client was sent to %s", strings.Join(used, " and "))
	}
	return nil
}
