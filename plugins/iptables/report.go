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

// counts are what operators of kube-proxy know, for one family.
type counts struct {
	last     map[string]int // rules written by the last update, by table
	failures int            // restores that were turned down
	partial  int            // of these, those with only what changed
}

func newCounts() counts { return counts{last: make(map[string]int)} }

func (c *counts) write(p plan) {
	c.last["nat"], c.last["filter"] = 0, 0
	for _, b := range p {
		for _, chain := range b.Whole {
			c.last[b.Table] += len(chain.Rules)
		}
		c.last[b.Table] += len(b.Insert)
	}
}

// failed counts a restore that was turned down, and whether it had only some of the
// chains.
func (c *counts) failed(partial bool) {
	c.failures++
	if partial {
		c.partial++
	}
}

// samples have the names that kube-proxy gave them.
func (s *side) samples() []sdk.Sample {
	const prefix = "kubeproxy_sync_proxy_rules_iptables_"
	family := map[sdk.Family]string{sdk.IPv4: "IPv4", sdk.IPv6: "IPv6"}[s.book.ground.family]
	one := func(name string, value int) sdk.Sample {
		return sdk.Sample{Name: name, Labels: map[string]string{"ip_family": family}, Value: float64(value)}
	}
	all := []sdk.Sample{
		one(prefix+"restore_failures_total", s.count.failures),
		one(prefix+"partial_restore_failures_total", s.count.partial),
	}
	for _, table := range []string{"filter", "nat"} {
		total, last := one(prefix+"total", s.book.rules[table]), one(prefix+"last", s.count.last[table])
		total.Labels["table"], last.Labels["table"] = table, table
		all = append(all, total, last)
	}
	return all
}
