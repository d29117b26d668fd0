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
	return t.withFlow("udp", func(s Scenario, stage Stage, p Packet, flow Flow, was netip.AddrPort) error {
		if err := t.sync(delta(s, without(s, was))); err != nil {
			return err
		}
		return poll(t.ctx, 15*time.Second, func() error {
			a, err := flow.Ask(t.ctx)
			switch {
			case err != nil:
				return fmt.Errorf("ask: %w", err)
			case a.Verdict != sdk.Forward || a.Endpoint == was:
				return fmt.Errorf("the flow finds %s after %s is gone", a, was)
			}
			return nil
		})
	})
}

// establishedStays: an established connection outlives its endpoint's removal, and a new
// one goes elsewhere.
func establishedStays(t *trial) error {
	return t.withFlow("cluster-ip", func(s Scenario, stage Stage, p Packet, flow Flow, was netip.AddrPort) error {
		if err := t.sync(delta(s, without(s, was))); err != nil {
			return err
		}
		a, err := flow.Ask(t.ctx)
		if err != nil || a.Endpoint != was {
			return fmt.Errorf("an established connection to %s found %s (%w)", was, a, orNil(err))
		}
		for range 8 {
			if a, err := stage.Send(t.ctx, p); err != nil || a.Verdict != sdk.Forward || a.Endpoint == was {
				return fmt.Errorf("a new connection found %s after %s is gone (%w)", a, was, orNil(err))
			}
		}
		return nil
	})
}

// withFlow serves a scenario and opens a flow with its first packet.
func (t *trial) withFlow(name string, then func(Scenario, Stage, Packet, Flow, netip.AddrPort) error) error {
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
		return fmt.Errorf("a first packet found %s (%w)", a, orNil(err))
	}
	return then(s, stage, p, flow, a.Endpoint)
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
	return s
}
