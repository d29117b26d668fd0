// SPDX-License-Identifier: Apache-2.0

package userspace

import "github.com/pointsman/pointsman/sdk"

// Report says how the relay is doing. It waits for nothing.
func (d *Dataplane) Report() sdk.Report {
	c := &d.relay.counts
	r := sdk.Report{
		Progress:   c.progress.Load(),
		Waiting:    c.wait(),
		SwapImpact: c.parting(),
		Flows:      int(c.calling.Load() + c.open.Load() + c.flows.Load()),
		Repaired:   c.repaired.Load(),
		Samples: []sdk.Sample{
			{Name: "pointsman_userspace_connections_total", Value: float64(c.connections.Load())},
			{Name: "pointsman_userspace_connections_open", Value: float64(c.open.Load())},
			{Name: "pointsman_userspace_dial_failures_total", Value: float64(c.dialErrors.Load())},
			{Name: "pointsman_userspace_turned_away_total", Value: float64(c.turnedAway.Load())},
			{Name: "pointsman_userspace_unanswered_total", Value: float64(c.unanswered.Load())},
			{Name: "pointsman_userspace_udp_flows", Value: float64(c.flows.Load())},
			{Name: "pointsman_userspace_udp_flows_total", Value: float64(c.flowsBegun.Load())},
			{Name: "pointsman_userspace_udp_overflow_total", Value: float64(c.overflow.Load())},
			{Name: "pointsman_userspace_bytes_total", Labels: map[string]string{"direction": "in"}, Value: float64(c.bytesIn.Load())},
			{Name: "pointsman_userspace_bytes_total", Labels: map[string]string{"direction": "out"}, Value: float64(c.bytesOut.Load())},
		},
	}
	for _, rounds := range c.rounds {
		rounds.Tell(&r)
	}
	d.claim.Tell(&r)
	return r
}
