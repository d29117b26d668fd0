// SPDX-License-Identifier: Apache-2.0

package userspace

import "github.com/pointsman/pointsman/sdk"

// Report says how the relay is doing. It waits for nothing.
func (d *Dataplane) Report() sdk.Report {
	c := d.relay.Counts()
	r := d.status.report()
	r.Flows = c.Open()
	r.Samples = append([]sdk.Sample{
		{Name: "pointsman_userspace_connections_total", Value: float64(c.Accepted)},
		{Name: "pointsman_userspace_connections_open", Value: float64(c.Established)},
		{Name: "pointsman_userspace_dial_failures_total", Value: float64(c.DialErrors)},
		{Name: "pointsman_userspace_turned_away_total", Value: float64(c.TurnedAway)},
		{Name: "pointsman_userspace_unanswered_total", Value: float64(c.Unanswered)},
		{Name: "pointsman_userspace_udp_flows", Value: float64(c.Flows)},
		{Name: "pointsman_userspace_udp_flows_total", Value: float64(c.FlowsBegun)},
		{Name: "pointsman_userspace_udp_overflow_total", Value: float64(c.Overflow)},
		{Name: "pointsman_userspace_bytes_total", Labels: map[string]string{"direction": "in"}, Value: float64(c.BytesIn)},
		{Name: "pointsman_userspace_bytes_total", Labels: map[string]string{"direction": "out"}, Value: float64(c.BytesOut)},
	}, r.Samples...)
	d.claim.Tell(&r)
	return r
}
