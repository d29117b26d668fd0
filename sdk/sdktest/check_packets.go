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
func packetsAreSent(t *trial) {
	s := t.calling("cluster-ip", 1)
	t.serve(s)
	t.need(t.packets(s))
}

// verdictChecks are one check for each scenario with packets that get no endpoint:
// those are the contract's line 1.
func verdictChecks() []check {
	return scenarioChecks("C01/scenario/", func(o Outcome) bool { return o.Verdict != sdk.Forward || o.Unserved })
}

// routeChecks are one check for each scenario with packets that get an endpoint:
// those are the contract's line 2.
func routeChecks() []check {
	return scenarioChecks("C02/scenario/", func(o Outcome) bool { return o.Verdict == sdk.Forward && !o.Unserved })
}

func scenarioChecks(prefix string, of func(Outcome) bool) []check {
	var all []check
	for _, s := range Scenarios() {
		s.Packets = slices.DeleteFunc(s.Packets, func(p Packet) bool { return !of(p.Want) })
		if len(s.Packets) > 0 {
			all = append(all, check{name: prefix + s.Name, run: func(t *trial) { t.show(s) }})
		}
	}
	return all
}

// show serves one scenario and sends its packets.
func (t *trial) show(s Scenario) {
	if lacks := s.Lacks(t.description); len(lacks) > 0 {
		t.fail(excused{"does not claim " + join(lacks)})
	}
	if t.subject.Testbed == nil {
		t.fail(noPackets)
	}
	s, leftOut := t.place(s)
	if len(s.Packets) == 0 {
		slices.Sort(leftOut)
		t.fail(excused{"this testbed can express none of the packets: " + strings.Join(slices.Compact(leftOut), "; ")})
	}
	t.serve(s)
	t.need(t.packets(s))
}

// affinityIsKept: one client on one frontend keeps its endpoint.
func affinityIsKept(t *trial) {
	t.keepsEndpoint(func(s Scenario) []Packet { return slices.Repeat(s.Packets[:1], 12) }, oneForAll)
}

// affinityOverFrontends: the client keeps it also when it calls by another
// address of the Service. As a limit says, it keeps one for each address.
func affinityOverFrontends(t *trial) {
	group := oneForAll
	limited := limited(t.description, sdk.LimitAffinityPerFrontend)
	if limited {
		group = oneForEach
	}
	t.keepsEndpoint(func(s Scenario) []Packet {
		p, q := s.Packets[0], s.Packets[0]
		q.To = s.Packets[1].To
		return []Packet{p, q, q, q, p, q, p, q, q, p, q, p, p}
	}, group)
	if limited {
		t.fail(by(sdk.LimitAffinityPerFrontend))
	}
}

func oneForAll(Packet) string    { return "one client" }
func oneForEach(p Packet) string { return "one client of " + p.To.String() }

// keepsEndpoint sends packets, and expects one endpoint for all those of a group.
func (t *trial) keepsEndpoint(packets func(Scenario) []Packet, group func(Packet) string) {
	s := t.calling("affinity", 2)
	t.serve(s)
	stage, err := t.stage(s)
	t.need(err)
	defer stage.Close()
	kept := make(map[string]netip.AddrPort)
	for _, p := range packets(s) {
		a, err := stage.Send(t.ctx, p)
		t.need(err)
		client := group(p)
		first, ok := kept[client]
		if a.Verdict != sdk.Forward || ok && a.Endpoint != first {
			t.fail(mismatch{fmt.Sprintf("%s to keep its endpoint %s", client, first), a.String()})
		}
		kept[client] = a.Endpoint
	}
}
