// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// Report says how far the present call is.
func (p *plugin) Report() sdk.Report {
	r := p.status.Report()
	p.claim.Tell(&r)
	return r
}

// publish makes the counts of all sides those that Report has. What kube-proxy counts
// too has the name it gave it.
func (p *plugin) publish() {
	var now sdk.Report
	for _, s := range p.sides {
		s.rounds.Tell(&now)
		family := map[string]string{"ip_family": strings.Replace(s.book.ground.family.String(), "ip", "IP", 1)}
		now.Samples = append(now.Samples,
			sdk.Sample{Name: "pointsman_ipvs_virtual_servers", Labels: family, Value: float64(len(s.book.have.servers))},
			sdk.Sample{Name: "pointsman_ipvs_addresses", Labels: family, Value: float64(len(s.book.have.vips))})
	}
	p.status.Tell(func(r *sdk.Report) { r.Samples, r.Histograms = now.Samples, now.Histograms })
}
