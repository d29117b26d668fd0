// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
)

// mode is the plugin's name. Locks and kernel parameters are held under this name.
const mode = "nftables"

// Description describes the plugin. It does not depend on the node.
var Description = sdk.Description{
	Name:     mode,
	Version:  "0.1.0",
	Features: sdk.Features,
	Options:  []byte(schema),
}

// New returns the dataplane. It keeps its ledger in dir (ledger.Dir on a node).
func New(dir string) sdk.Dataplane {
	p := new(plugin)
	p.Dataplane = frame.New(frame.Mode[piece]{Description: Description, Open: p.open, Sweep: p.sweep}, dir)
	return p
}

// A plugin is a frame.Dataplane that also implements Inspect, Trace and affinity transfer.
type plugin struct {
	*frame.Dataplane[piece]
	notes frame.Notes
	tally frame.Tally
	drops frame.Notes // notes about chains of iptables that drop forwarded packets

	marks    atomic.Pointer[masquerade.Keeper] // of the present session
	isActive atomic.Bool                       // the role is Active

	mu       sync.Mutex // guards families, which Report and Inspect read while a call runs
	families []*family
}

// families are the two IP families.
var families = []sdk.Family{sdk.IPv4, sdk.IPv6}

// open begins a session: it asks the kernel, for each family, whether it supports the layout.
func (p *plugin) open(ctx context.Context, setup sdk.Setup, env frame.Env) (frame.Session[piece], error) {
	var session frame.Session[piece]
	options, err := parseOptions(setup.Options)
	if err != nil {
		return session, err
	}
	var all []*family
	var reasons []string
	commits := new(atomic.Uint32)
	marks := &masquerade.Keeper{Holder: mode, Ledger: env.Ledger, Log: env.Log, Note: p.notes.Set}
	marks.Look()
	p.marks.Store(marks)
	for _, of := range families {
		if err := probe(ctx, nodeConfig{ip: ipOf(of)}); err != nil {
			env.Log.Info("the kernel cannot serve a family", "family", of, "err", err)
			reasons = append(reasons, err.Error())
			continue
		}
		f := newFamily(of, options, commits, marks, p, env)
		f.checkForeignChains(ctx)
		all = append(all, f)
		session.Families = append(session.Families, f)
	}
	if len(all) == 0 {
		// both families often fail for the same reason
		return session, &sdk.Refusal{Why: strings.Join(slices.Compact(reasons), "\n"), Try: "another mode, or Linux 5.10 or later with nf_tables"}
	}
	for _, f := range all {
		for _, before := range p.families {
			if before.ip == f.ip {
				f.kernel.conn, before.kernel.conn = before.kernel.conn, nil // keep the socket: the table would lose its owner if it were closed
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.families = all
	session.Settings = func(n sdk.Node) sysctl.Settings { return options.settings(n) }
	return session, nil
}

// probe asks the kernel whether it accepts the complete layout.
func probe(ctx context.Context, n nodeConfig) error {
	n.parts = allParts(n.ip, longestTimeout)
	return probeTable(ctx, n.ip, newLayout(n, sdk.Active))
}
