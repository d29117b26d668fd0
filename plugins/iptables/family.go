// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A family is the rules of one IP family, as the frame sees them.
type family struct {
	reconcile.Family[rules.Piece, rules.Key, string]
	rules   *familyRules
	reader  iptables.Tool // reads beside calls, while that of rules is handed the lock or loses it
	options options
	log     *slog.Logger
	many    func() int // how many Services there are

	addressed time.Time      // when the node's addresses were looked at last
	found     []netip.Prefix // what was bound then
}

func newFamily(tool iptables.Tool, o options, env frame.Env) *family {
	f := &family{rules: newFamilyRules(tool), reader: tool, options: o, log: env.Log, many: env.Services}
	f.Family = reconcile.Family[rules.Piece, rules.Key, string]{Reconciler: f.rules.Reconciler, Of: tool.Family, NodePorts: f.takesNodePorts}
	return f
}

// Masquerade is the hold on the chains that all dataplanes share.
func (f *family) Masquerade() *masquerade.Hold { return f.rules.Masquerade }

// Hold hands the lock to every program that writes.
func (f *family) Hold(lock *ledger.Lock) { f.rules.Hold(lock) }

// Adopt reads the tables, unless no process wrote since they were last read.
func (f *family) Adopt(ctx context.Context, _ frame.Parts) (sdk.Role, error) {
	f.mayCount(ctx)
	if f.rules.IsCurrent() {
		return f.rules.ShownRole(), nil
	}
	return f.rules.List(ctx)
}

// Ours reports whether the tables have the chain that this dataplane always writes and kube-proxy never.
func (f *family) Ours() bool {
	_, there := f.rules.Found(nat(markOthers))
	return there
}

// Node takes what the host says of the node, and what the kernel says of its addresses.
func (f *family) Node(n sdk.Node) error {
	if err := checkPods(n.Pods); err != nil {
		return err
	}
	of := f.rules.Family()
	bound, err := bound(of, n.ServiceCIDRs)
	if err != nil {
		return err
	}
	uplinks, err := flows.Uplinks(of)
	if err != nil { // no Service waits for them: moved asks again
		f.log.Warn("cannot see the default routes", "err", err)
		uplinks = f.rules.node.uplinks
	}
	f.rules.setNode(nodeConfig{
		family:    of,
		node:      n,
		localhost: f.options.LocalhostNodePorts && frame.Localhost(of, n),
		liberal:   n.Conntrack.TCPBeLiberal || sysctl.Liberal(),
		counted:   f.rules.counts,
		bound:     bound,
		uplinks:   uplinks,
	})
	return nil
}

// Ceiling is how many endpoints one Service may have, in one family: as many as one call
// writes in about two seconds of a processor.
const Ceiling = 20_000

// Want is what a Service needs in the tables.
func (f *family) Want(svc sdk.Service) (rules.Piece, error) {
	p := want(svc, f.rules.node.node, f.commented(svc))
	err := frame.TooMany(svc, Ceiling, "several Services, or a trafficDistribution that keeps traffic near")
	if err != nil && !p.IsEmpty() {
		return rules.Piece{}, err
	}
	return keepComments(p, f.rules.Installed()[svc.Name]), nil
}

// Plan is what the tables lack.
func (f *family) Plan() frame.Plan {
	f.rules.lead()
	return f.Family.Plan()
}

// Probe looks whether others have written to nft's tables, and at the sizes of legacy's; and now and
// then at the node's addresses.
func (f *family) Probe(ctx context.Context) frame.Finding {
	f.rules.lead()
	found := f.Family.Probe(ctx)
	found.Moved = f.moved()
	return found
}

// Audit reads one chain, or asks for one jump.
func (f *family) Audit(ctx context.Context) frame.Finding {
	f.rules.Audit(ctx)
	return reconcile.Found(f.rules.Doubted())
}

// moved reports whether an ipvs dataplane has bound other addresses than the rules know of, and
// the same at two looks. It binds all it has while it takes over from this mode, which is about
// to be told to drain: to write for that would hold the change of mode up.
func (f *family) moved() bool {
	if time.Since(f.addressed) < addressesEvery {
		return false
	}
	f.addressed = time.Now()
	now, err := bound(f.rules.Family(), f.rules.node.node.ServiceCIDRs)
	if err != nil {
		f.log.Warn("cannot see which addresses take node ports", "err", err)
		return false
	}
	if up, err := flows.Uplinks(f.rules.Family()); err == nil && !slices.EqualFunc(up, f.rules.node.uplinks, flows.Uplink.Equal) {
		f.log.Info("the node has other default routes", "family", f.rules.Family())
		return true
	}
	before := f.found
	f.found = now
	if slices.Equal(now, f.rules.node.bound) || !slices.Equal(now, before) {
		return false
	}
	f.log.Info("other addresses are bound by ipvs", "family", f.rules.Family(), "ranges", len(now))
	return true
}

// familyRules are the rules of one family, and the node that they are for.
type familyRules struct {
	*rules.Rules
	node nodeConfig

	counts bool // rules can count in accounts,
	asked  bool // and that will not change
}

func newFamilyRules(tool iptables.Tool) *familyRules {
	s := &familyRules{Rules: rules.New(ruleConfig(tool.Family), tool), node: nodeConfig{family: tool.Family}}
	s.Reading = func(iptables.Tables) error {
		if !s.counts || s.Tool.Hold == nil {
			return nil
		}
		return openAccounts() // without rules, another process may have removed them
	}
	return s
}

// lead has the jumps be those that the role needs.
func (s *familyRules) lead() { s.SetJumps(s.leads(s.Planned()), s.node.jumps(sdk.Active)) }
