// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"fmt"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// What operators want to know of single packets the kernel counts in accounts, which
// have kube-proxy's names, too. Both families share them.
const (
	invalidDropped    = "ct_state_invalid_dropped_pkts"
	localhostAccepted = "localhost_nps_accepted_pkts"
)

// accounts are the metrics that the accounts become.
var accounts = map[string]string{
	invalidDropped:    "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
	localhostAccepted: "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
}

// counted are the words that count, in the account called name, the packets that the
// words before them match.
func counted(name string) iptables.Rule { return iptables.Words("-m nfacct --nfacct-name", name) }

// mayCount finds out whether rules can count: the kernel and the programs must be able to,
// and the writer has to make the accounts first. One that does not write only looks whether
// they are there.
func (f *family) mayCount(ctx context.Context) {
	s := f.rules
	if s.asked {
		return
	}
	if s.Tool.Hold == nil {
		_, s.counts = iptables.Account(invalidDropped)
		return
	}
	probe := new(iptables.Script)
	probe.Begin("filter")
	probe.Chain(forward, []iptables.Rule{counted(invalidDropped)})
	probe.Commit()
	err := s.Tool.Test(ctx, probe)
	if err == nil {
		err = openAccounts()
	}
	s.asked, s.counts = ctx.Err() == nil, err == nil
	if err != nil {
		f.log.Info("the kernel or the programs cannot count for rules", "family", s.Family(), "err", err)
	}
}

func openAccounts() error { return iptables.OpenAccounts(invalidDropped, localhostAccepted) }

// accountSamples are the samples of the accounts that are there.
func accountSamples() []sdk.Sample {
	var samples []sdk.Sample
	for account, metric := range accounts {
		if packets, ok := iptables.Account(account); ok {
			samples = append(samples, sdk.Sample{Name: metric, Value: float64(packets)})
		}
	}
	return samples
}

// closeAccounts removes, or only names, the accounts by which no rule counts any more.
func closeAccounts(dryRun bool) ([]string, error) {
	var gone []string
	for _, name := range []string{invalidDropped, localhostAccepted} {
		if _, there := iptables.Account(name); !there {
			continue
		}
		if !dryRun {
			if err := iptables.CloseAccount(name); err != nil {
				return gone, err
			}
			if _, there := iptables.Account(name); there {
				continue // other rules count by it
			}
		}
		gone = append(gone, fmt.Sprintf("nfacct: remove %s", name))
	}
	return gone, nil
}

// reasons are those for which the rules in chains of filter drop or reject, by chain.
var reasons = map[string]string{
	denied: sdk.DropSourceRange, noneLocal: sdk.DropLocalWithoutEndpoint, unserved: sdk.DropNoEndpoint, foreign: sdk.DropForeignPort,
}

// counted returns how many packets of a family were dropped, by reason.
func (p *plugin) counted(ctx context.Context, of sdk.Family) (map[string]uint64, error) {
	for _, tool := range p.tools() {
		if tool.Family == of {
			return tool.Counted(ctx, reasons)
		}
	}
	return nil, nil
}

// Tell adds samples that have the names that kube-proxy gave them, and names chains that iptables cannot print.
func (f *family) Tell(r *sdk.Report) {
	const prefix = "kubeproxy_sync_proxy_rules_iptables_"
	s := f.rules
	family := map[sdk.Family]string{sdk.IPv4: "IPv4", sdk.IPv6: "IPv6"}[s.Family()]
	one := func(name string, value int) sdk.Sample {
		return sdk.Sample{Name: name, Labels: map[string]string{"ip_family": family}, Value: float64(value)}
	}
	r.Notes = append(r.Notes, s.Notes()...)
	r.Samples = append(r.Samples,
		one(prefix+"restore_failures_total", s.Stats.Failures),
		one(prefix+"partial_restore_failures_total", s.Stats.Partial),
	)
	for _, table := range []string{"filter", "nat"} {
		total, last := one(prefix+"total", s.RuleCount(table)), one(prefix+"last", s.Stats.Last[table])
		total.Labels["table"], last.Labels["table"] = table, table
		r.Samples = append(r.Samples, total, last)
	}
}
