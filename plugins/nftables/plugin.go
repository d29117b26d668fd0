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

// mode is the plugin's name, and that under which it holds locks and settings.
const mode = "nftables"

// Description is what the plugin is, known without looking at the node.
var Description = sdk.Description{
	Name:     mode,
	Version:  "0.1.0",
	Features: sdk.Features,
	Options:  []byte(schema),
}

// New is the dataplane, which keeps its ledger in dir (ledger.Dir on a node).
func New(dir string) sdk.Dataplane {
	p := new(plugin)
	p.Dataplane = frame.New(frame.Mode[wanted]{Description: Description, Open: p.open, Sweep: p.sweep}, dir)
	return p
}

// A plugin is the frame around both families, and what this mode can do besides.
type plugin struct {
	*frame.Dataplane[wanted]
	notes frame.Notes
	tally frame.Tally
	drops frame.Notes // those that name a chain of iptables which drops what is forwarded

	marks  atomic.Pointer[masquerade.Keeper] // the session's
	serves atomic.Bool                       // its role is Active

	mu       sync.Mutex // guards what follows, which is read beside a call
	families []*family
}

// families are the two of IP.
var families = []sdk.Family{sdk.IPv4, sdk.IPv6}

// open begins a session: can the kernel do what the layout needs, and in which families?
func (p *plugin) open(ctx context.Context, setup sdk.Setup, env frame.Env) (frame.Session[wanted], error) {
	var session frame.Session[wanted]
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
		f.lookAround(ctx)
		all = append(all, f)
		session.Families = append(session.Families, f)
	}
	if len(all) == 0 {
		// both families may have one reason
		return session, &sdk.Refusal{Why: strings.Join(slices.Compact(reasons), "\n"), Try: "another mode, or Linux 5.10 or later with nf_tables"}
	}
	for _, f := range all {
		for _, before := range p.families {
			if before.ip == f.ip {
				f.kernel.conn, before.kernel.conn = before.kernel.conn, nil // closed and opened again it would leave the table without an owner
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.families = all
	session.Settings = func(n sdk.Node) sysctl.Settings { return options.settings(n) }
	return session, nil
}

// probe asks the kernel whether it takes the layout.
func probe(ctx context.Context, n nodeConfig) error {
	n.parts = whole(n.ip, longestTimeout)
	return probeTable(ctx, n.ip, newLayout(n, sdk.Active))
}
