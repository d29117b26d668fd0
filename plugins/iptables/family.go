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

// A family implements frame.Family for the rules of one IP family.
type family struct {
	reconcile.Family[rules.Piece, rules.Key, string]
	rules   *familyRules
	reader  iptables.Tool // for reads that run beside a call; rules.Tool changes with the lock
	options options
	log     *slog.Logger
	many    func() int // how many Services there are

	addrsReadAt time.Time      // when checkAddrs last read the node's addresses
	lastBound   []netip.Prefix // the result of ipvsPrefixes at that time
}

func newFamily(tool iptables.Tool, o options, env frame.Env) *family {
	f := &family{rules: newFamilyRules(tool), reader: tool, options: o, log: env.Log, many: env.Services}
	f.Family = reconcile.Family[rules.Piece, rules.Key, string]{Reconciler: f.rules.Reconciler, Of: tool.Family, NodePorts: f.takesNodePorts}
	return f
}

// Masquerade returns the hold on the masquerade chains that all dataplanes share.
func (f *family) Masquerade() *masquerade.Hold { return f.rules.Masquerade }

// Hold passes the lock to every program that writes.
func (f *family) Hold(lock *ledger.Lock) { f.rules.Hold(lock) }

// Adopt reads the tables, unless no process has written to them since they were last read.
func (f *family) Adopt(ctx context.Context, _ frame.Parts) (sdk.Role, error) {
	f.probeAccounts(ctx)
	if f.rules.IsCurrent() {
		return f.rules.ShownRole(), nil
	}
	return f.rules.List(ctx)
}

// Ours reports whether the tables have KUBE-MARK-NOT-POD, which this dataplane always writes and kube-proxy
// never.
func (f *family) Ours() bool {
	_, there := f.rules.Found(nat(markNotPod))
	return there
}

// Node sets the node's configuration and reads its addresses and default routes from the kernel.
func (f *family) Node(n sdk.Node) error {
	if err := checkPods(n.Pods); err != nil {
		return err
	}
	of := f.rules.Family()
	bound, err := ipvsPrefixes(of, n.ServiceCIDRs)
	if err != nil {
		return err
	}
	uplinks, err := flows.Uplinks(of)
	if err != nil { // no Service depends on them: checkAddrs reads them again
		f.log.Warn("cannot read the default routes", "err", err)
		uplinks = f.rules.node.uplinks
	}
	f.rules.setNode(nodeConfig{
		family:    of,
		node:      n,
		localhost: f.options.LocalhostNodePorts && frame.Localhost(of, n),
		liberal:   n.Conntrack.TCPBeLiberal || sysctl.Liberal(),
		canCount:  f.rules.canCount,
		bound:     bound,
		uplinks:   uplinks,
	})
	return nil
}

// Ceiling is the maximum number of endpoints of a Service in one family. One call can write that many in about
// two seconds of CPU time.
const Ceiling = 20_000

// Want returns the rules that a Service needs.
func (f *family) Want(svc sdk.Service) (rules.Piece, error) {
	p := want(svc, f.rules.node.node, f.hasComments(svc))
	err := frame.TooMany(svc, Ceiling, "several Services, or a trafficDistribution that keeps traffic near")
	if err != nil && !p.IsEmpty() {
		return rules.Piece{}, err
	}
	return keepComments(p, f.rules.Installed()[svc.Name]), nil
}

// Plan returns the changes that the tables need.
func (f *family) Plan() frame.Plan {
	f.rules.updateJumps()
	return f.Family.Plan()
}

// Probe checks whether other programs have changed the tables: by commits for nft, by table sizes for legacy.
// From time to time it also reads the node's addresses.
func (f *family) Probe(ctx context.Context) frame.Finding {
	f.rules.updateJumps()
	found := f.Family.Probe(ctx)
	found.Moved = f.checkAddrs()
	return found
}

// checkAddrs reports whether the node's default routes, or the addresses that an ipvs dataplane has bound, have
// changed since the rules were written. Changed ipvs addresses count when two consecutive reads agree. An ipvs
// dataplane that takes over from this mode binds all its addresses at once, and soon after the host sets this
// mode to Draining: a write at that time would delay the swap.
func (f *family) checkAddrs() bool {
	if time.Since(f.addrsReadAt) < addressesEvery {
		return false
	}
	f.addrsReadAt = time.Now()
	now, err := ipvsPrefixes(f.rules.Family(), f.rules.node.node.ServiceCIDRs)
	if err != nil {
		f.log.Warn("cannot read which addresses take node ports", "err", err)
		return false
	}
	if up, err := flows.Uplinks(f.rules.Family()); err == nil && !slices.EqualFunc(up, f.rules.node.uplinks, flows.Uplink.Equal) {
		f.log.Info("the node's default routes have changed", "family", f.rules.Family())
		return true
	}
	before := f.lastBound
	f.lastBound = now
	if slices.Equal(now, f.rules.node.bound) || !slices.Equal(now, before) {
		return false
	}
	f.log.Info("the addresses bound by ipvs have changed", "family", f.rules.Family(), "ranges", len(now))
	return true
}

// familyRules are the rules of one family and the node configuration that they are rendered for.
type familyRules struct {
	*rules.Rules
	node nodeConfig

	canCount        bool // rules can count packets in nfacct accounts
	canCountIsFinal bool // canCount is final for this process
}

func newFamilyRules(tool iptables.Tool) *familyRules {
	s := &familyRules{Rules: rules.New(ruleConfig(tool.Family), tool), node: nodeConfig{family: tool.Family}}
	s.Reading = func(iptables.Tables) error {
		if !s.canCount || s.Tool.Hold == nil {
			return nil
		}
		return openAccounts() // another process may have removed accounts that no rule used
	}
	return s
}
