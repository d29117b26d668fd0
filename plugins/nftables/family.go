// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A family is the table of one IP family, as the frame sees it, and what is in it.
type family struct {
	reconcile.Family[wanted, entryKey, entryValue]
	ip // never another, so that Inspect may read it beside a call

	kernel  *nfTable
	options options
	log     *slog.Logger
	marks   *masquerade.Keeper
	plugin  *plugin

	node nodeConfig
	last number // the one that was given last

	addressed time.Time // when the node's addresses were looked at last
	looked    time.Time // when the chains of other programs were,
	foreign   bool      // and whether those may have changed since
	written   uint32    // and what Written said then
}

func newFamily(of sdk.Family, o options, c *atomic.Uint32, m *masquerade.Keeper, p *plugin, env frame.Env) *family {
	f := &family{
		ip: ipOf(of), node: nodeConfig{ip: ipOf(of)}, options: o, log: env.Log, marks: m, plugin: p,
		foreign: true,
	}
	f.kernel = &nfTable{
		ip: f.ip, log: env.Log, commits: c, protect: o.Protect == "auto",
		foreign: func() {
			f.foreign = true
			m.Doubt()
		},
	}
	f.Family = reconcile.NewFamily(of, f, f.kernel)
	f.NodePorts = func() (func(netip.Addr) bool, error) { return f.takesNodePorts, nil }
	f.Name, f.Batch = fmt.Sprintf("%s %s", of, table), mostChanges
	f.Applied = func() {
		m.Begin(f.node.node.MasqueradeBit, m.Written() == 0 && len(p.drops.All()) > 0) // else packets would be dropped at first
		if m.Written() != f.written {
			f.lookAround(context.Background())
		}
	}
	return f
}

// Hold says that this process is the writer, or is it no more.
func (f *family) Hold(lock *ledger.Lock) {
	if lock == nil {
		f.marks.Stop()
	}
	f.kernel.hold(lock != nil)
}

// Adopt reads the table. What no Service needs of the layout goes.
func (f *family) Adopt(ctx context.Context, which frame.Parts) (sdk.Role, error) {
	if which == 0 {
		return f.kernel.readRole(ctx)
	}
	role, err := f.List(ctx)
	if err != nil {
		return 0, err
	}
	f.foreign = true
	for _, w := range f.Installed() {
		f.last = max(f.last, w.number)
	}
	return role, nil
}

// Ours reports whether the table is there.
func (f *family) Ours() bool { return f.kernel.have.there }

// Node takes what the host says of the node, and what the kernel says of its addresses.
func (f *family) Node(n sdk.Node) error {
	f.node = nodeConfig{
		ip: f.ip, node: n, parts: f.node.parts,
		localhost: f.options.localhost(f.Of, n),
		liberal:   n.Conntrack.TCPBeLiberal || sysctl.Liberal(),
	}
	f.Refix()
	_, err := f.node.look()
	return err
}

// Role is that for which base chains are planned.
func (f *family) Role(r sdk.Role) error {
	f.plugin.serves.Store(r == sdk.Active)
	f.SetRole(r)
	return nil
}

// Want returns what svc comes to, with the slots and the number that it has.
func (f *family) Want(svc sdk.Service) (wanted, error) {
	w, err := want(svc)
	if err != nil {
		return wanted{}, err
	}
	return w.arranged(f.Installed()[svc.Name], f.free), nil
}

// Probe looks whether the table is as it was written, and now and then at the node's addresses.
func (f *family) Probe(ctx context.Context) frame.Finding {
	found := f.Family.Probe(ctx)
	f.lookAround(ctx)
	found.Due = f.moved()
	return found
}

// free is a number that no Service has. A process counts on: none lives so long that it gets to
// the first again.
func (f *family) free() number {
	f.last++
	return f.last
}

func (f *family) takesNodePorts(a netip.Addr) bool {
	return slices.ContainsFunc(f.node.own, func(p netip.Prefix) bool { return p.Contains(a) })
}

// failures is how kube-proxy's metrics of its nftables mode begin.
const failures = "kubeproxy_sync_proxy_rules_nftables_"

// Tell adds how much the kernel has, and how often it did not take what was written.
func (f *family) Tell(r *sdk.Report) {
	labels := map[string]string{"ip_family": pick(f.Of, "IPv4", "IPv6")}
	r.Samples = append(r.Samples, []sdk.Sample{
		{Name: "pointsman_nftables_elements", Help: "Elements in the sets and maps of the dataplane's table.", Labels: labels, Value: float64(f.kernel.total())},
		{Name: "pointsman_nftables_services", Help: "Ports of Services that the dataplane's table serves.", Labels: labels, Value: float64(len(f.Installed()))},
		{Name: failures + "sync_failures_total", Labels: labels, Value: float64(f.kernel.refused)},
		{Name: failures + "cleanup_failures_total", Labels: labels, Value: float64(f.kernel.removals)},
	}...)
}
