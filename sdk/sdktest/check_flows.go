// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// udpLeavesTheGone: a flow whose endpoint is gone goes to another, although its
// socket is still the same.
func udpLeavesTheGone(t *trial) error {
	return t.withFlow("udp", func(f flowing) error {
		if err := t.sync(delta(f.scenario, without(f.scenario, f.was))); err != nil {
			return err
		}
		return poll(t.ctx, 15*time.Second, func() error {
			a, err := f.flow.Ask(t.ctx)
			switch {
			case err != nil:
				return fmt.Errorf("ask: %w", err)
			case a.Verdict != sdk.Forward || a.Endpoint == f.was:
				return mismatch{fmt.Sprintf("the flow to find another endpoint when %s is gone", f.was), a.String()}
			}
			return nil
		})
	})
}

// udpStaysWithOthers: a flow is not touched when another endpoint is removed and a new
// one comes. Forgotten, it might find its endpoint again by chance, so they come
// and go several times.
func udpStaysWithOthers(t *trial) error {
	return t.withFlow("udp", func(f flowing) error {
		at := f.scenario
		for i := range uint16(6) {
			next := f.scenario
			next.Services = slices.Clone(next.Services)
			comes := netip.AddrPortFrom(netip.MustParseAddr("127.180.9.9"), 5140+i)
			next.Services[0].Cluster = []sdk.Endpoint{{Addr: f.was}, {Addr: comes}}
			next.Services[0].Normalize()
			if err := t.sync(delta(at, next)); err != nil {
				return err
			}
			if err := f.stays(t, "when another one is gone"); err != nil {
				return err
			}
			at = next
		}
		return nil
	})
}

// udpStaysWithServing: nor when its endpoint takes no new callers, and serves on.
func udpStaysWithServing(t *trial) error {
	return t.withFlow("udp", func(f flowing) error {
		s := without(f.scenario, f.was)
		s.Services[0].Serving = []netip.Addr{f.was.Addr()}
		if err := t.sync(delta(f.scenario, s)); err != nil {
			return err
		}
		return f.stays(t, "when its endpoint takes no new callers")
	})
}

// udpStaysWithNobody: nor when nobody is left that it could be sent to.
func udpStaysWithNobody(t *trial) error {
	return t.withFlow("udp", func(f flowing) error {
		s := f.scenario
		for _, ep := range s.Services[0].Reachable() {
			s = without(s, ep.Addr)
		}
		if err := t.sync(delta(f.scenario, s)); err != nil {
			return err
		}
		return f.stays(t, "when nobody serves")
	})
}

// establishedStays: an established connection outlives its endpoint's removal, and a new
// one goes elsewhere.
func establishedStays(t *trial) error {
	return t.withFlow("cluster-ip", func(f flowing) error {
		if err := t.sync(delta(f.scenario, without(f.scenario, f.was))); err != nil {
			return err
		}
		if err := f.stays(t, "when its endpoint is gone"); err != nil {
			return err
		}
		for range 8 {
			if a, err := f.stage.Send(t.ctx, f.packet); err != nil || a.Verdict != sdk.Forward || a.Endpoint == f.was {
				return fmt.Errorf("a new connection: %w", found(fmt.Sprintf("an endpoint other than %s", f.was), a, err))
			}
		}
		return nil
	})
}

// drainingKeeps: who drains keeps what is established, catches nothing new, and
// still hears which endpoints are gone.
func drainingKeeps(t *trial) error {
	return t.withFlow("cluster-ip", func(f flowing) error {
		if err := t.role(sdk.Draining); err != nil {
			return err
		}
		if err := f.stays(t, "while draining"); err != nil {
			return err
		}
		left := without(f.scenario, f.was)
		if err := t.sync(delta(f.scenario, left)); err != nil {
			return fmt.Errorf("while draining: %w", err)
		}
		if a, err := f.stage.Send(t.ctx, unserved(f.scenario).Packets[0]); err != nil || a.Verdict == sdk.Forward {
			return fmt.Errorf("while draining: %w", found("a new connection to be none of ours", a, err))
		}
		if err := t.role(sdk.Active); err != nil {
			return err
		}
		again := func(s Scenario) error { return t.packetsOn(f.stage, s) }
		if err := t.servesBy(left, again); err != nil {
			return fmt.Errorf("active again: %w", err)
		}
		return nil
	})
}

// everyRoleKeeps: what is established stays in every role, and Draining tells that it is
// there, whichever roles came before.
func everyRoleKeeps(scenario string) func(*trial) error {
	return func(t *trial) error {
		return t.withFlow(scenario, func(f flowing) error {
			for _, role := range []sdk.Role{sdk.Standby, sdk.Draining, sdk.Active, sdk.Draining, sdk.Standby, sdk.Active} {
				if err := t.role(role); err != nil {
					return err
				}
				if err := f.stays(t, "when the role is "+role.String()); err != nil {
					return err
				}
				if role == sdk.Draining && t.untold() {
					return mismatch{"Draining to tell of an established connection", "no flows in its Report"}
				}
			}
			return nil
		})
	}
}

// untold reports whether the dataplane says that no connections are left. One that
// only tells what it would do with packets has none.
func (t *trial) untold() bool {
	r, tells := t.dp.(sdk.Reporter)
	_, carriesNone := t.dp.(Sender)
	return tells && !carriesNone && r.Report().Flows == 0
}

// flowing is a flow that has found its endpoint.
type flowing struct {
	scenario Scenario
	stage    Stage
	packet   Packet // its first
	flow     Flow
	was      netip.AddrPort // the endpoint
}

// stays expects the flow to go on with its endpoint.
func (f flowing) stays(t *trial, when string) error {
	for range 3 {
		if a, err := f.flow.Ask(t.ctx); err != nil || a.Endpoint != f.was {
			return found(fmt.Sprintf("an established flow to stay with %s %s", f.was, when), a, err)
		}
	}
	return nil
}

// found is an answer that is not what it should be, or why there is none.
func found(want string, a Answer, err error) error {
	if err != nil {
		return mismatch{want, err.Error()}
	}
	return mismatch{want, a.String()}
}

// withFlow serves a scenario and opens a flow with its first packet.
func (t *trial) withFlow(name string, then func(flowing) error) error {
	s, err := t.scenario(name)
	if err != nil {
		return err
	}
	if len(s.Packets) == 0 {
		return notRun{"the ground can express none of the packets"}
	}
	if err := t.serve(s); err != nil {
		return err
	}
	stage, err := t.stage(s)
	if err != nil {
		return err
	}
	defer stage.Close()
	p := s.Packets[0]
	flow, err := stage.Dial(t.ctx, p)
	if err != nil {
		return err
	}
	defer flow.Close()
	a, err := flow.Ask(t.ctx)
	if err != nil || a.Verdict != sdk.Forward {
		return fmt.Errorf("a first packet: %w", found(p.Want.String(), a, err))
	}
	return then(flowing{s, stage, p, flow, a.Endpoint})
}

// without is s when an endpoint is gone.
func without(s Scenario, gone netip.AddrPort) Scenario {
	left := func(list []sdk.Endpoint) []sdk.Endpoint {
		return slices.DeleteFunc(slices.Clone(list), func(ep sdk.Endpoint) bool { return ep.Addr == gone })
	}
	s.Services = slices.Clone(s.Services)
	for i, svc := range s.Services {
		svc.Cluster, svc.Local = left(svc.Cluster), left(svc.Local)
		s.Services[i] = svc
	}
	return s.judged()
}
