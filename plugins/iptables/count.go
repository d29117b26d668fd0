// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// Names of the nfacct accounts in which rules count packets. They are kube-proxy's names. Both families share
// them.
const (
	invalidDropped    = "ct_state_invalid_dropped_pkts"
	localhostAccepted = "localhost_nps_accepted_pkts"
)

// accounts maps the name of an account to the name of its metric.
var accounts = map[string]string{
	invalidDropped:    "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
	localhostAccepted: "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
}

// accountMatch returns the match that counts, in an account, the packets which the matches before it select.
func accountMatch(name string) iptables.Rule { return iptables.Words("-m nfacct --nfacct-name", name) }

// probeAccounts finds out whether rules can count in accounts. The kernel and the programs must support it, and
// the writer must create the accounts first. A process that is not the writer only checks whether the accounts
// exist.
func (f *family) probeAccounts(ctx context.Context) {
	s := f.rules
	if s.canCountIsFinal {
		return
	}
	if s.Tool.Hold == nil {
		s.canCount = len(accountSamples()) > 0
		return
	}
	probe := iptables.Plan{{Table: "filter", Whole: []iptables.Chain{{ID: filter(forward), Rules: []iptables.Rule{accountMatch(invalidDropped)}}}}}
	err := s.Tool.Test(ctx, probe.Script(s.Tool.Backend))
	if err == nil {
		err = openAccounts()
	}
	s.canCountIsFinal, s.canCount = ctx.Err() == nil, err == nil
	if err != nil {
		f.log.Info("packet counters disabled: the kernel or iptables lacks nfacct", "family", s.Family(), "err", err)
	}
}

// eachAccount calls f with the name of each account and a connection to the kernel.
func eachAccount(f func(conn *nftnl.Conn, name string) error) error {
	conn, err := nftnl.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		if err := f(conn, name); err != nil {
			return fmt.Errorf("nfacct account %s: %w", name, err)
		}
	}
	return nil
}

// openAccounts creates the accounts that do not exist.
func openAccounts() error {
	return eachAccount(func(conn *nftnl.Conn, name string) error { return conn.CreateAccount(context.Background(), name) })
}

// accountSamples returns the samples of the accounts that exist.
func accountSamples() (samples []sdk.Sample) {
	_ = eachAccount(func(conn *nftnl.Conn, name string) error { // without a connection there are no accounts
		if packets, ok := conn.Account(context.Background(), name); ok {
			samples = append(samples, sdk.Sample{Name: accounts[name], Value: float64(packets)})
		}
		return nil
	})
	return samples
}

// closeAccounts removes the accounts that no rule uses any more. With dryRun it only names them.
func closeAccounts(ctx context.Context, dryRun bool) (gone []string, err error) {
	if len(accountSamples()) == 0 {
		return nil, nil
	}
	err = eachAccount(func(conn *nftnl.Conn, name string) error {
		_, exists := conn.Account(ctx, name)
		if exists && !dryRun {
			if err := conn.DeleteAccount(ctx, name); err != nil {
				return err
			}
			_, used := conn.Account(ctx, name) // by a foreign rule
			exists = !used
		}
		if exists {
			gone = append(gone, fmt.Sprintf("nfacct: remove %s", name))
		}
		return nil
	})
	return gone, err
}

// reasons maps each filter chain that drops or rejects packets to the reason.
var reasons = map[string]string{
	denied: sdk.DropSourceRange, noLocalEndpoint: sdk.DropLocalWithoutEndpoint, noEndpoint: sdk.DropNoEndpoint, foreignPort: sdk.DropForeignPort,
}

// countDropped returns the number of dropped packets of a family by reason.
func (p *plugin) countDropped(ctx context.Context, of sdk.Family) (map[string]uint64, error) {
	for _, tool := range p.tools() {
		if tool.Family == of {
			return tool.Counted(ctx, reasons)
		}
	}
	return nil, nil
}

// Tell adds metrics with kube-proxy's names, and names the chains that iptables cannot print.
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
