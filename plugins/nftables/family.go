// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/nftable"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A family is the table of one IP family, as the frame sees it, and what is in it.
type family struct {
	*nftable.Table[wanted]
	ip // never another, so that Inspect may read it beside a call

	options options
	log     *slog.Logger
	marks   *masquerade.Keeper
	plugin  *plugin

	node nodeConfig
	role sdk.Role
	last number // the one that was given last

	addressed time.Time // when the node's addresses were looked at last
	looked    time.Time // when the chains of other programs were,
	foreign   bool      // and whether those may have changed since
	written   uint32    // and what Written said then
	draining  flows.Draining
}

var _ interface {
	frame.Family[wanted]
	frame.Drainer
	frame.Forgetter
	frame.Sampler
} = (*family)(nil)

func newFamily(of sdk.Family, o options, c *nftable.Commits, m *masquerade.Keeper, p *plugin, env frame.Env) *family {
	f := &family{
		ip: ipOf(of), node: nodeConfig{ip: ipOf(of)}, options: o, log: env.Log, marks: m, plugin: p,
		foreign: true,
	}
	f.Table = &nftable.Table[wanted]{
		Name: table, Of: of, Layout: f, Commits: c, Log: env.Log, Protect: o.Protect == "auto",
		Foreign: func() {
			f.foreign = true
			m.Doubt()
		},
		Applied: func() {
			m.Begin(f.node.node.MasqueradeBit, m.Written() == 0 && len(p.drops.All()) > 0) // else packets would be dropped at first
			if m.Written() != f.written {
				f.lookAround(context.Background())
			}
		},
	}
	return f
}

// Serves reports whether of is the family's.
func (f *family) Serves(of sdk.Family) bool { return of == f.node.Family }

// Hold says that this process is the writer, or is it no more.
func (f *family) Hold(lock *ledger.Lock) {
	if lock == nil {
		f.marks.Stop()
	}
	f.Table.Hold(lock != nil)
}

// Adopt reads the table. What no Service needs of the layout goes.
func (f *family) Adopt(ctx context.Context, _ frame.Parts) (sdk.Role, error) {
	if err := f.Table.Adopt(ctx); err != nil {
		return 0, err
	}
	f.foreign, f.node.parts, f.last = true, parts{}, 0
	for _, w := range f.Have.Services {
		f.last = max(f.last, w.number)
	}
	return shown(f.Have), nil
}

// shown is the role that base chains show.
func shown(o nftable.Observed[wanted]) sdk.Role {
	switch {
	case o.Chain("nat-prerouting"):
		return sdk.Active
	case o.Chain("nat-postrouting"):
		return sdk.Draining
	}
	return sdk.Standby
}

// Node takes what the host says of the node, and what the kernel says of its addresses.
func (f *family) Node(n sdk.Node) error {
	f.node = nodeConfig{
		ip: f.ip, node: n, parts: f.node.parts,
		localhost: f.options.localhost(f.Family, n),
		liberal:   n.Conntrack.TCPBeLiberal || sysctl.Liberal(),
	}
	f.Reshape()
	_, err := f.node.look()
	return err
}

// Role is that for which base chains are planned.
func (f *family) Role(r sdk.Role) error {
	f.role = r
	f.plugin.serves.Store(r == sdk.Active)
	f.Reshape()
	return nil
}

// Want is what svc comes to.
func (f *family) Want(svc sdk.Service) (wanted, error) { return want(svc) }

// Probe looks whether the table is as it was written, and now and then at the node's addresses.
func (f *family) Probe(ctx context.Context) frame.Finding {
	why, unsure := f.Changed(ctx)
	f.lookAround(ctx)
	found := frame.Finding{Due: f.moved(), Unsure: unsure}
	if why != "" {
		found.Lost, found.Why = frame.All, why
	}
	return found
}

// Sets are those of the layout, as far as Services need them.
func (f *family) Sets() []nftnl.Set { return layoutSets(f.ip, f.node.parts) }

// Chains are those of the layout, for the role.
func (f *family) Chains() []nftable.Chain { return layout(f.node, f.role) }

// Grow has the layout be enough for w.
func (f *family) Grow(w wanted) bool { return f.node.grow(f.Family, w) }

// Fixed are the addresses that take node ports.
func (f *family) Fixed() (all []nftable.Element) {
	for _, p := range f.node.own {
		if p.IsSingleIP() { // each longer one has a rule
			all = append(all, nftable.Element{Set: "own", Element: nftnl.Element{Key: string(p.Addr().AsSlice())}})
		}
	}
	return all
}

// Arrange is desired with the slots and the number of have.
func (f *family) Arrange(have, desired wanted) wanted { return desired.arranged(have, f.free) }

// free is a number that no Service has. A process counts on: none lives so long that it gets to
// the first again.
func (f *family) free() number {
	f.last++
	return f.last
}

// Forget ends UDP flows to these Services that lead nowhere.
func (f *family) Forget(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	return conntrack.Forget(of, conntrack.Serving(of, services, f.takesNodePorts).Telling(step))
}

// ForgetEarly deletes connections to these Services that began before they were there.
func (f *family) ForgetEarly(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	return conntrack.ForgetEarly(of, services, f.takesNodePorts, step)
}

func (f *family) takesNodePorts(a netip.Addr) bool {
	return slices.ContainsFunc(f.node.own, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Flows are what is left of the connections that were established when this dataplane began
// to drain.
func (f *family) Flows(services map[sdk.Name]sdk.Service, fresh bool) (int, error) {
	return f.draining.Count(f.Family, services, fresh)
}

// failures is how kube-proxy's metrics of its nftables mode begin.
const failures = "kubeproxy_sync_proxy_rules_nftables_"

// Samples are how much the kernel has, and how often it did not take what was written.
func (f *family) Samples() []sdk.Sample {
	labels := map[string]string{"ip_family": pick(f.ip, "IPv4", "IPv6")}
	return []sdk.Sample{
		{Name: "pointsman_nftables_elements", Help: "Elements in the sets and maps of the dataplane's table.", Labels: labels, Value: float64(f.Have.Elements)},
		{Name: "pointsman_nftables_services", Help: "Ports of Services that the dataplane's table serves.", Labels: labels, Value: float64(len(f.Have.Services))},
		{Name: failures + "sync_failures_total", Labels: labels, Value: float64(f.Refused)},
		{Name: failures + "cleanup_failures_total", Labels: labels, Value: float64(f.Removals)},
	}
}
