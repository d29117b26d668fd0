// SPDX-License-Identifier: Apache-2.0

package iptables

import "github.com/pointsman/pointsman/sdk"

// Report says how far the present call is.
func (p *plugin) Report() sdk.Report {
	r := p.status.Report()
	p.claim.Tell(&r)
	r.Samples = append(r.Samples, tally()...)
	return r
}

// publish makes the counts of all sides those that Report has.
func (p *plugin) publish() {
	var now sdk.Report
	for _, s := range p.sides {
		now.Samples = append(now.Samples, s.samples()...)
		s.rounds.Tell(&now)
	}
	p.status.Tell(func(r *sdk.Report) { r.Samples, r.Histograms = now.Samples, now.Histograms })
}

// samples have the names that kube-proxy gave them.
func (s *side) samples() []sdk.Sample {
	const prefix = "kubeproxy_sync_proxy_rules_iptables_"
	family := map[sdk.Family]string{sdk.IPv4: "IPv4", sdk.IPv6: "IPv6"}[s.Family()]
	one := func(name string, value int) sdk.Sample {
		return sdk.Sample{Name: name, Labels: map[string]string{"ip_family": family}, Value: float64(value)}
	}
	all := []sdk.Sample{
		one(prefix+"restore_failures_total", s.Stats.Failures),
		one(prefix+"partial_restore_failures_total", s.Stats.Partial),
	}
	for _, table := range []string{"filter", "nat"} {
		total, last := one(prefix+"total", s.RuleCount(table)), one(prefix+"last", s.Stats.Last[table])
		total.Labels["table"], last.Labels["table"] = table, table
		all = append(all, total, last)
	}
	return all
}
