// SPDX-License-Identifier: Apache-2.0

// Package userspace serves Services with sockets: it accepts connections and datagrams, and package relay forwards them to
// endpoints. There are two ways. As root, rules in the kernel redirect the packets of every frontend to a few sockets
// (redirected.go, rules.go, render.go). Otherwise the relay listens at the frontends' own addresses, which needs no
// privileges and no other program (direct.go).
//
//	Update ──▶ want ──▶ claims ──▶ package reconcile ──▶ sockets, and rules that lead to them
//	                                                   │ Serve: a target
//	client ──────────────────────────────────────▶ package relay ──▶ endpoint
//
// This package decides which sockets exist, and which Service each serves. It must never hold a lock that a connection
// waits for. Package frame has the sessions, the roles and the writer's lock. Start reading at sockets.go.
package userspace

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// mode is the plugin's name. Locks and kernel parameters are held under this name.
const mode = "userspace"

// Description describes the plugin. It does not depend on the node.
var Description = sdk.Description{
	Name:    mode,
	Version: "0.1.0",
	Features: []sdk.Feature{
		sdk.FeatureIPv4, sdk.FeatureIPv6, sdk.FeatureUDP, sdk.FeatureNodePort,
		sdk.FeatureLocalPolicy, sdk.FeatureSourceRanges, sdk.FeatureAffinity,
	},
	Limits:  []sdk.Limit{sdk.LimitNoClientAddress, sdk.LimitDiesWithProcess}, // and more without rules
	Options: []byte(schema),
}

var families = []sdk.Family{sdk.IPv4, sdk.IPv6}

// New returns the dataplane. It keeps its ledger in dir (ledger.Dir on a node). Close ends it.
func New(dir string) sdk.Dataplane { return newPlugin(dir) }

func newPlugin(dir string) *plugin { return newPluginOn(theInterfaces(), machineAddresses, dir) }

// newPluginOn returns a plugin for a machine with these interfaces, where own returns the addresses.
func newPluginOn(system interfaces, own func() ([]address, error), dir string) *plugin {
	vips := newVIPs(system, dir)
	p := &plugin{process: process{
		relay: relay.New(), vips: vips, addresses: vips.mark(own), log: slog.New(slog.DiscardHandler), step: func() {},
		affinity: make(map[sdk.Name][]sdk.AffinityEntry),
	}}
	p.swapImpact.Store("")
	p.Dataplane = frame.New(frame.Mode[*desired]{Description: Description, Open: p.open, Sweep: p.sweep, Elsewhere: sweepRules(false).Elsewhere}, dir)
	return p
}

// A plugin is a frame.Dataplane that also implements Inspect, Trace and affinity transfer. The frame serializes access to
// its other fields.
type plugin struct {
	*frame.Dataplane[*desired]
	process
	way        way
	swapImpact atomic.Value // string for Report
}

// A way is how packets get to the sockets.
type way struct {
	backend  string // of iptables; empty: the sockets are at the frontends' own addresses
	families []family
}

// A family serves one IP family: a direct or a redirected.
type family interface {
	frame.Family[*desired]
	inspect(there map[sdk.Family]*familyRules) []sdk.Served
	core() *sockets
	close()
}

// Close closes all sockets and connections, like the end of the process.
func (p *plugin) Close() error {
	err := p.Dataplane.Close()
	return errors.Join(err, p.Beside(context.Background(), func() error { p.end(); return p.vips.unlock() }))
}

// end closes all sockets and connections. The rules stay.
func (p *plugin) end() {
	p.way.close()
	p.relay.Stop()
	clear(p.affinity)
}

// close closes all sockets.
func (w *way) close() {
	for _, f := range w.families {
		f.close()
	}
}

// redirected returns the families with rules.
func (w *way) redirected() (all []*redirected) {
	for _, f := range w.families {
		if r, ok := f.(*redirected); ok {
			all = append(all, r)
		}
	}
	return all
}

// Report returns the progress of the running call, with the counters of the relay.
func (p *plugin) Report() sdk.Report {
	c := &p.relay.Counters
	r := p.Dataplane.Report()
	r.Flows, r.SwapImpact = c.Open(), p.swapImpact.Load().(string)
	r.Samples = append([]sdk.Sample{
		{Name: "pointsman_userspace_connections_total", Help: "TCP connections that were relayed.", Value: float64(c.Accepted.Load())},
		{Name: "pointsman_userspace_connections_open", Help: "TCP connections that are relayed now.", Value: float64(c.Established.Load())},
		{Name: "pointsman_userspace_dial_failures_total", Help: "Attempts at an endpoint that failed; the next one is tried.", Value: float64(c.DialErrors.Load())},
		{Name: "pointsman_userspace_turned_away_total", Help: "Connections and datagrams dropped because their source is not allowed, or no endpoint may answer them.", Value: float64(c.TurnedAway.Load())},
		{Name: "pointsman_userspace_unanswered_total", Help: "Connections closed because no endpoint answered.", Value: float64(c.Unanswered.Load())},
		{Name: "pointsman_userspace_udp_flows", Help: "UDP flows that are relayed now.", Value: float64(c.Flows.Load())},
		{Name: "pointsman_userspace_udp_flows_total", Help: "UDP flows that were begun.", Value: float64(c.FlowsBegun.Load())},
		{Name: "pointsman_userspace_udp_overflow_total", Help: "Datagrams dropped because too many flows are open.", Value: float64(c.Overflow.Load())},
		{Name: "pointsman_userspace_bytes_total", Help: "Bytes relayed: in from the callers, out to them.", Labels: map[string]string{"direction": "in"}, Value: float64(c.BytesIn.Load())},
		{Name: "pointsman_userspace_bytes_total", Help: "Bytes relayed: in from the callers, out to them.", Labels: map[string]string{"direction": "out"}, Value: float64(c.BytesOut.Load())},
	}, r.Samples...)
	return r
}

// SetRole changes the role. Failed sockets are opened at once: the process that this one replaces may just have closed its
// own. In Standby SetRole also finds out what a swap to this mode would interrupt.
func (p *plugin) SetRole(ctx context.Context, role sdk.Role) error {
	err := p.Do(ctx, func(map[sdk.Name]sdk.Service) error {
		for _, f := range p.way.families {
			f.core().retry = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := p.Dataplane.SetRole(ctx, role); err != nil {
		return err
	}
	if p.swapImpact.Store(""); role != sdk.Standby {
		return nil
	}
	return p.Do(ctx, func(map[sdk.Name]sdk.Service) error { p.findSwapImpact(ctx); return nil })
}
