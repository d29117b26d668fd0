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

// A family implements frame.Family for the table of one IP family.
type family struct {
	reconcile.Family[piece, entryKey, entryValue]
	ip // never changes, so Inspect may read it while a call runs

	kernel  *nfTable
	options options
	log     *slog.Logger
	marks   *masquerade.Keeper
	plugin  *plugin

	node       nodeConfig
	lastNumber number // the number that nextNumber returned last

	addrsReadAt   time.Time // when checkAddrs last read the node's addresses
	chainsReadAt  time.Time // when checkForeignChains last read the chains of other programs
	chainsChanged bool      // these chains may have changed since
	written       uint32    // the value of marks.Written at that time
}

func newFamily(of sdk.Family, o options, c *atomic.Uint32, m *masquerade.Keeper, p *plugin, env frame.Env) *family {
	f := &family{
		ip: ipOf(of), node: nodeConfig{ip: ipOf(of)}, options: o, log: env.Log, marks: m, plugin: p,
		chainsChanged: true,
	}
	f.kernel = &nfTable{
		ip: f.ip, log: env.Log, commits: c, protect: o.Protect == "auto",
		foreign: func() {
			f.chainsChanged = true
			m.Doubt()
		},
	}
	f.Family = reconcile.NewFamily(of, f, f.kernel)
	f.NodePorts = func() (func(netip.Addr) bool, error) { return f.takesNodePorts, nil }
	f.Name, f.Batch = fmt.Sprintf("%s %s", of, table), mostChanges
	f.Applied = func() {
		m.Begin(f.node.node.MasqueradeBit, m.Written() == 0 && len(p.drops.All()) > 0) // wait for the jump if FORWARD drops: packets would be dropped until it exists
		if m.Written() != f.written {
			f.checkForeignChains(context.Background())
		}
	}
	return f
}

// Hold sets whether this process is the writer. lock is nil if it is not.
func (f *family) Hold(lock *ledger.Lock) {
	if lock == nil {
		f.marks.Stop()
	}
	f.kernel.hold(lock != nil)
}

// Adopt reads the table. The next plan removes the parts of the layout that no Service needs.
func (f *family) Adopt(ctx context.Context, which frame.Parts) (sdk.Role, error) {
	if which == 0 {
		return f.kernel.readRole(ctx)
	}
	role, err := f.List(ctx)
	if err != nil {
		return 0, err
	}
	f.chainsChanged = true
	for _, w := range f.Installed() {
		f.lastNumber = max(f.lastNumber, w.number)
	}
	return role, nil
}

// Ours reports whether the table exists.
func (f *family) Ours() bool { return f.kernel.have.there }

// Node sets the node's configuration, and reads its addresses and default routes from the kernel.
func (f *family) Node(n sdk.Node) error {
	f.node = nodeConfig{
		ip: f.ip, node: n, parts: f.node.parts,
		localhost: f.options.localhost(f.Of, n),
		liberal:   n.Conntrack.TCPBeLiberal || sysctl.Liberal(),
	}
	f.Refix()
	_, err := f.node.readAddrs()
	return err
}

// Role sets the role, which decides the base chains.
func (f *family) Role(r sdk.Role) error {
	f.plugin.isActive.Store(r == sdk.Active)
	f.SetRole(r)
	return nil
}

// Want returns the piece of svc, with the slots and the number that the Service already has.
func (f *family) Want(svc sdk.Service) (piece, error) {
	w, err := want(svc)
	if err != nil {
		return piece{}, err
	}
	return w.withSlotsOf(f.Installed()[svc.Name], f.nextNumber), nil
}

// Probe checks whether the table is as this process wrote it. From time to time it also reads the chains of
// other programs and the node's addresses.
func (f *family) Probe(ctx context.Context) frame.Finding {
	found := f.Family.Probe(ctx)
	f.checkForeignChains(ctx)
	found.Due = f.checkAddrs()
	return found
}

// nextNumber returns a number that no Service has. A process never reuses one: 32 bits are enough for its life.
func (f *family) nextNumber() number {
	f.lastNumber++
	return f.lastNumber
}

func (f *family) takesNodePorts(a netip.Addr) bool {
	return slices.ContainsFunc(f.node.own, func(p netip.Prefix) bool { return p.Contains(a) })
}

// failures is the prefix of kube-proxy's metrics of its nftables mode.
const failures = "kubeproxy_sync_proxy_rules_nftables_"

// Tell adds metrics: the size of the table, and the number of transactions that the kernel refused.
func (f *family) Tell(r *sdk.Report) {
	labels := map[string]string{"ip_family": byFamily(f.Of, "IPv4", "IPv6")}
	r.Samples = append(r.Samples, []sdk.Sample{
		{Name: "pointsman_nftables_elements", Help: "Elements in the sets and maps of the dataplane's table.", Labels: labels, Value: float64(f.kernel.total)},
		{Name: "pointsman_nftables_services", Help: "Ports of Services that the dataplane's table serves.", Labels: labels, Value: float64(len(f.Installed()))},
		{Name: failures + "sync_failures_total", Labels: labels, Value: float64(f.kernel.refused)},
		{Name: failures + "cleanup_failures_total", Labels: labels, Value: float64(f.kernel.removals)},
	}...)
}
