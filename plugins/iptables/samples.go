// SPDX-License-Identifier: Apache-2.0

package iptables

import "github.com/pointsman/pointsman/sdk"

// Samples have the names that kube-proxy gave them.
func (f *family) Samples() []sdk.Sample {
	const prefix = "kubeproxy_sync_proxy_rules_iptables_"
	s := f.rules
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
