// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// udpLeavesTheGone checks that a flow from the same socket moves to another endpoint when its
// endpoint is removed.
func udpLeavesTheGone(t *trial) {
	f := t.dial("udp")
	t.sync(delta(f.scenario, without(f.scenario, f.was)))
	t.need(poll(t.ctx, 15*time.Second, func() error {
		a, err := f.flow.Ask(t.ctx)
		if err != nil || a.Verdict != sdk.Forward || a.Endpoint == f.was {
			return unexpected(fmt.Sprintf("the flow to find another endpoint when %s is gone", f.was), a, err)
		}
		return nil
	}))
}

// udpStaysWithOthers checks that a flow stays with its endpoint when other endpoints are
// removed and added. A deleted flow could find its endpoint again by chance, so this happens
// several times.
func udpStaysWithOthers(t *trial) {
	f := t.dial("udp")
	at := f.scenario
	for i := range uint16(6) {
		next := f.scenario
		next.Services = slices.Clone(next.Services)
		comes := netip.AddrPortFrom(netip.MustParseAddr("127.180.9.9"), 5140+i)
		next.Services[0].Cluster = []sdk.Endpoint{{Addr: f.was}, {Addr: comes}}
		next.Services[0].Normalize()
		t.sync(delta(at, next))
		t.checkStays(f, "when another one is gone")
		at = next
	}
}

// udpStaysWithServing checks that a flow stays with an endpoint that gets no new flows but
// still serves.
func udpStaysWithServing(t *trial) {
	f := t.dial("udp")
	s := without(f.scenario, f.was)
	s.Services[0].Serving = []netip.Addr{f.was.Addr()}
	t.sync(delta(f.scenario, s))
	t.checkStays(f, "when its endpoint takes no new callers")
}

// udpLeavesUnserved checks that a flow is refused when no endpoint serves its frontend any
// more, or when the Service is deleted. With restart, this happens while no process runs.
func udpLeavesUnserved(deleted, restart bool) func(*trial) {
	return func(t *trial) {
		f := t.dial("udp")
		s := f.scenario
		s.Services = slices.Clone(s.Services)
		s.Services[0].Cluster, s.Services[0].Local = nil, nil
		if deleted {
			s.Services = nil
		}
		u := delta(f.scenario, s)
		if restart {
			if _, inMemory := t.dp.(Sender); inMemory {
				t.fail(excused{"its flows are those of its process"})
			}
			t.stop()
			t.need(t.start())
			u = s.Update(0)
		}
		t.sync(u)
		t.need(poll(t.ctx, 15*time.Second, func() error {
			ctx, cancel := context.WithTimeout(t.ctx, 2*time.Second)
			defer cancel()
			if a, err := f.flow.Ask(ctx); err == nil && a.Verdict == sdk.Forward {
				return unexpected("the flow to end, as nothing serves it", a, err)
			}
			return nil
		}))
	}
}

// establishedStays checks that an established connection survives the removal of its endpoint,
// and that a new connection goes elsewhere.
func establishedStays(t *trial) {
	f := t.dial("cluster-ip")
	t.sync(delta(f.scenario, without(f.scenario, f.was)))
	t.checkStays(f, "when its endpoint is gone")
	t.during("a new connection")
	for range 8 {
		if a, err := f.stage.Send(t.ctx, f.packet); err != nil || a.Verdict != sdk.Forward || a.Endpoint == f.was {
			t.fail(unexpected(fmt.Sprintf("an endpoint other than %s", f.was), a, err))
		}
	}
}

// drainingKeeps checks that a draining dataplane keeps established connections, receives no new
// ones, and still applies removals of endpoints.
func drainingKeeps(t *trial) {
	f := t.dial("cluster-ip")
	t.during("while draining")
	t.role(sdk.Draining)
	t.checkStays(f, "while draining")
	left := without(f.scenario, f.was)
	t.sync(delta(f.scenario, left))
	if a, err := f.stage.Send(t.ctx, unserved(f.scenario).Packets[0]); err != nil || a.Verdict == sdk.Forward {
		t.fail(unexpected("a new connection not to be served", a, err))
	}
	t.during("active again")
	t.role(sdk.Active)
	t.need(t.differsBy(left, func(s Scenario) error { return t.packetsOn(f.stage, s) }))
}

// everyRoleKeeps checks that established connections stay in every role, and that Draining
// reports them, whatever roles came before.
func everyRoleKeeps(scenario string) func(*trial) {
	return func(t *trial) {
		f := t.dial(scenario)
		for _, role := range []sdk.Role{sdk.Standby, sdk.Draining, sdk.Active, sdk.Draining, sdk.Standby, sdk.Active} {
			t.role(role)
			t.checkStays(f, "when the role is "+role.String())
			if role == sdk.Draining && t.reportsNoFlows() {
				t.fail(mismatch{"Draining to report an established connection", "no flows in its Report"})
			}
		}
	}
}

// reportsNoFlows reports whether the dataplane reports no connections. A Recorder, which only
// says what it would do with packets, has none.
func (t *trial) reportsNoFlows() bool {
	r, tells := t.dp.(sdk.Reporter)
	_, carriesNone := t.dp.(Sender)
	return tells && !carriesNone && r.Report().Flows == 0
}

// flowing is a flow that has reached its endpoint.
type flowing struct {
	scenario Scenario
	stage    Stage
	packet   Packet // first packet
	flow     Flow
	was      netip.AddrPort // endpoint of the first packet
}

// checkStays checks that the flow continues with its endpoint.
func (t *trial) checkStays(f flowing, when string) {
	for range 3 {
		if a, err := f.flow.Ask(t.ctx); err != nil || a.Endpoint != f.was {
			t.fail(unexpected(fmt.Sprintf("an established flow to stay with %s %s", f.was, when), a, err))
		}
	}
}

// unexpected returns an error that describes an unexpected answer, or the error instead of an
// answer.
func unexpected(want string, a Answer, err error) error {
	if err != nil {
		return mismatch{want, err.Error()}
	}
	return mismatch{want, a.String()}
}

// dial serves a scenario and opens a flow with its first packet. The flow lasts until the trial
// ends.
func (t *trial) dial(name string) flowing {
	s := t.calling(name, 1)
	t.serve(s)
	stage, err := t.stage(s)
	t.need(err)
	t.cleanup(func() { stage.Close() })
	p := s.Packets[0]
	flow, err := stage.Dial(t.ctx, p)
	t.need(err)
	t.cleanup(func() { flow.Close() })
	a, err := flow.Ask(t.ctx)
	if err != nil || a.Verdict != sdk.Forward {
		t.fail(fmt.Errorf("a first packet: %w", unexpected(p.Want.String(), a, err)))
	}
	return flowing{s, stage, p, flow, a.Endpoint}
}

// without returns s without an endpoint.
func without(s Scenario, gone netip.AddrPort) Scenario {
	left := func(list []sdk.Endpoint) []sdk.Endpoint {
		return slices.DeleteFunc(slices.Clone(list), func(ep sdk.Endpoint) bool { return ep.Addr == gone })
	}
	s.Services = slices.Clone(s.Services)
	for i, svc := range s.Services {
		svc.Cluster, svc.Local = left(svc.Cluster), left(svc.Local)
		s.Services[i] = svc
	}
	return s.withOutcomes()
}
