// SPDX-License-Identifier: Apache-2.0

// Package userspace serves Services with sockets: it accepts what is sent to them, and a
// relay carries it to an endpoint. With root, rules in the kernel redirect clients of every
// frontend to few sockets (redirected.go, rules.go). Without, it needs no privileges and no
// other program: it listens on the frontends' own addresses (direct.go). That makes it the
// dataplane to try things with, and the one where nothing else is allowed.
//
//	Update ──▶ want ──▶ claims ──▶ package reconcile ──▶ sockets, and rules to them
//	                                                   │ Serve: a target
//	client ──────────────────────────────────────▶ package relay ──▶ endpoint
//
// This package decides which sockets there are, and which Service each is for; the ones
// in package relay do the rest. No connection waits for a lock of this package. Sessions,
// roles and the writer's lock are package frame's.
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

// mode is the plugin's name, and that under which it holds locks and settings.
const mode = "userspace"

// Description is what the plugin is, known without looking at the node.
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

// families are those that can be served.
var families = []sdk.Family{sdk.IPv4, sdk.IPv6}

// New is a relay in Standby, which keeps its ledger in dir (ledger.Dir on a node).
// Close ends it.
func New(dir string) sdk.Dataplane { return newPlugin(dir) }

func newPlugin(dir string) *plugin { return newPluginOn(theInterfaces(), machineAddresses, dir) }

// newPluginOn is newPlugin where addresses are added to system, and the machine has those that
// own returns.
func newPluginOn(system interfaces, own func() ([]address, error), dir string) *plugin {
	adding := newAdding(system, dir)
	p := &plugin{process: process{
		relay: relay.New(), adding: adding, addresses: adding.marked(own), log: slog.New(slog.DiscardHandler), step: func() {},
		affinity: make(map[sdk.Name][]sdk.AffinityEntry),
	}}
	p.impact.Store("")
	p.Dataplane = frame.New(frame.Mode[*desired]{Description: Description, Open: p.open, Sweep: p.sweep, Elsewhere: swept(false).Elsewhere}, dir)
	p.handsOver(dir)
	return p
}

// A plugin is the frame around the families, and what this mode can do besides. What is
// not atomic is guarded by the frame: one thing at a time.
type plugin struct {
	*frame.Dataplane[*desired]
	process
	way    way
	impact atomic.Value // what a change of mode to this one would end, for people
}

// A way is how clients reach the relay.
type way struct {
	backend  string // as the options say it; empty: by the frontends' own addresses
	families []family
}

// A family serves one IP family, in one of two ways.
type family interface {
	frame.Family[*desired]
	inspect(inspection) []sdk.Served
	core() *sockets
	close()
}

// Close ends everything that runs, as the end of the process would.
func (p *plugin) Close() error {
	err := p.Dataplane.Close()
	return errors.Join(err, p.Beside(context.Background(), func() error { p.end(); return p.adding.letGo() }))
}

// end closes all sockets, and ends what they have begun. The rules stay.
func (p *plugin) end() {
	p.handover.withdraw()
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

// Report says how the relay is doing. It waits for nothing.
func (p *plugin) Report() sdk.Report {
	c := &p.relay.Counters
	r := p.Dataplane.Report()
	r.Flows, r.SwapImpact = c.Open(), p.impact.Load().(string)
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

// withRules are the families that rules lead to.
func (w *way) withRules() (all []*redirected) {
	for _, f := range w.families {
		if r, ok := f.(*redirected); ok {
			all = append(all, r)
		}
	}
	return all
}
