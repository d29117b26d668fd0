// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"fmt"
	"net/netip"
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

// verdictChecks are one check for each scenario with packets that nobody gets:
// those are the contract's line 1.
func verdictChecks() []check {
	return scenarioChecks("C01/scenario/", func(o Outcome) bool { return o.Verdict != sdk.Forward || o.Unserved })
}

// routeChecks are one check for each scenario with packets that somebody gets:
// those are the contract's line 2.
func routeChecks() []check {
	return scenarioChecks("C02/scenario/", func(o Outcome) bool { return o.Verdict == sdk.Forward && !o.Unserved })
}

func scenarioChecks(prefix string, of func(Outcome) bool) []check {
	var all []check
	for _, s := range Scenarios() {
		s.Packets = slices.DeleteFunc(s.Packets, func(p Packet) bool { return !of(p.Want) })
		if len(s.Packets) > 0 {
			all = append(all, check{name: prefix + s.Name, run: func(t *trial) error { return t.show(s) }})
		}
	}
	return all
}

// show serves one scenario and sends its packets.
func (t *trial) show(s Scenario) error {
	if lacks := s.Lacks(t.description); len(lacks) > 0 {
		return excused{"does not claim " + join(lacks)}
	}
	if t.subject.Ground == nil {
		return noPackets
	}
	s, leftOut := t.place(s)
	if len(s.Packets) == 0 {
		slices.Sort(leftOut)
		return excused{"this ground can express none of the packets: " + strings.Join(slices.Compact(leftOut), "; ")}
	}
	if err := t.serve(s); err != nil {
		return err
	}
	return t.packets(s)
}

// affinitySticks: one client on one frontend keeps its endpoint.
func affinitySticks(t *trial) error {
	return t.sticks(func(s Scenario) []Packet { return slices.Repeat(s.Packets[:1], 12) }, oneForAll)
}

// affinityOverFrontends: the client keeps it also when it calls by another
// address of the Service. As a limit says, it keeps one for each address.
func affinityOverFrontends(t *trial) error {
	group := oneForAll
	limited := limited(t.description, sdk.LimitAffinityPerFrontend)
	if limited {
		group = oneForEach
	}
	err := t.sticks(func(s Scenario) []Packet {
		p, q := s.Packets[0], s.Packets[0]
		q.To = s.Packets[1].To
		return []Packet{p, q, q, q, p, q, p, q, q, p, q, p, p}
	}, group)
	if err == nil && limited {
		return by(sdk.LimitAffinityPerFrontend)
	}
	return err
}

func oneForAll(Packet) string    { return "one client" }
func oneForEach(p Packet) string { return "one client of " + p.To.String() }

// sticks sends packets, and expects one endpoint for all those of a group.
func (t *trial) sticks(packets func(Scenario) []Packet, group func(Packet) string) error {
	s, err := t.scenario("affinity")
	if err != nil {
		return err
	}
	if len(s.Packets) < 2 {
		return notRun{"the ground can express too few of the packets"}
	}
	if err := t.serve(s); err != nil {
		return err
	}
	stage, err := t.stage(s)
	if err != nil {
		return err
	}
	defer stage.Close()
	kept := make(map[string]netip.AddrPort)
	for _, p := range packets(s) {
		a, err := stage.Send(t.ctx, p)
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		who := group(p)
		first, ok := kept[who]
		if a.Verdict != sdk.Forward || ok && a.Endpoint != first {
			return mismatch{fmt.Sprintf("%s to keep its endpoint %s", who, first), a.String()}
		}
		kept[who] = a.Endpoint
	}
	return nil
}
