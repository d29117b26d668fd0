// SPDX-License-Identifier: Apache-2.0

package ipvs

import "github.com/pointsman/pointsman/sdk"

// Report says how far the present call is.
func (p *plugin) Report() sdk.Report { return p.status.Report() }

// publish makes the counts of all sides those that Report has. What kube-proxy counts
// too has the name it gave it.
func (p *plugin) publish() {
	var samples []sdk.Sample
	for _, s := range p.sides {
		family := map[string]string{"ip_family": s.book.ground.family.String()}
		samples = append(samples,
			sdk.Sample{Name: "kubeproxy_conntrack_reconciler_deleted_entries_total", Labels: family, Value: float64(s.forgot)},
			sdk.Sample{Name: "pointsman_ipvs_virtual_servers", Labels: family, Value: float64(len(s.book.have.servers))},
			sdk.Sample{Name: "pointsman_ipvs_addresses", Labels: family, Value: float64(len(s.book.have.vips))})
	}
	p.status.Tell(func(r *sdk.Report) { r.Samples = samples })
}
