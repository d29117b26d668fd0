// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
)

// mode is the plugin's name. Locks and kernel parameters are held under this name.
const mode = "iptables"

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
	p.Dataplane = frame.New(frame.Mode[rules.Piece]{Description: Description, Open: p.open, Sweep: sweepAll, Elsewhere: sweepRules(false).Elsewhere}, dir)
	return p
}

// A plugin is a frame.Dataplane that also implements Inspect, Trace and affinity transfer.
type plugin struct {
	*frame.Dataplane[rules.Piece]
	tally frame.Tally

	mu       sync.Mutex // guards families, which Report and Inspect read while a call runs
	families []*family
}

// open begins a session: it finds the installed programs and the backend (nft or legacy) that the node uses.
func (p *plugin) open(ctx context.Context, setup sdk.Setup, env frame.Env) (frame.Session[rules.Piece], error) {
	options, err := parseOptions(setup.Options)
	if err != nil {
		return frame.Session[rules.Piece]{}, err
	}
	tools, err := iptables.OpenAll(ctx, options.Backend, env.Note)
	if err != nil {
		return frame.Session[rules.Piece]{}, err
	}
	commits := new(iptables.Commits)
	var families []*family
	var session frame.Session[rules.Piece]
	for _, tool := range tools {
		tool.Waiting, tool.Heard, tool.Commits = env.Waiting, env.Step, commits
		f := newFamily(tool, options, env)
		f.rules.Masquerade = &masquerade.Hold{Ledger: env.Ledger, Holder: mode, Tool: f.rules.Tool}
		families, session.Families = append(families, f), append(session.Families, f)
	}
	session.Settings = settingsFor(families)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.families = families
	return session, nil
}

// tools returns the programs that read the rules of each family.
func (p *plugin) tools() []iptables.Tool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []iptables.Tool
	for _, f := range p.families {
		all = append(all, f.reader)
	}
	return all
}

// Report returns the progress of the running call, with the packet counters of the kernel.
func (p *plugin) Report() sdk.Report {
	r := p.Dataplane.Report()
	r.Samples = append(slices.Clip(r.Samples), accountSamples()...)
	r.Dropped = p.tally.Read(p.countDropped)
	return r
}

// options are the plugin's options in the host's config file.
type options struct {
	Backend            string `json:"backend"`
	LocalhostNodePorts bool   `json:"localhostNodePorts"`
}

// schema is the JSON schema of options.
const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "backend": {"enum": ["auto", "nft", "legacy"], "default": "auto", "x-pointsman-fixed": true, "description": "iptables backend to write to; auto: the one in use on the node"},
    "localhostNodePorts": {"type": "boolean", "default": true, "description": "whether IPv4 node ports answer on 127.0.0.1, if nodePortAddresses has it"}
  }
}`

func parseOptions(data []byte) (options, error) {
	o := options{Backend: "auto", LocalhostNodePorts: true}
	if err := frame.ParseOptions(mode, data, &o); err != nil {
		return o, err
	}
	return o, iptables.CheckBackend(&o.Backend)
}

// settingsFor returns the kernel parameters for a node that serves these families.
//
// Invariant: while route_localnet is set, the chain KUBE-LOCALNET-GUARD is in place. The frame therefore sets
// the parameters after it wrote the rules, and restores them before it removes the rules.
func settingsFor(families []*family) func(sdk.Node) sysctl.Settings {
	return func(n sdk.Node) sysctl.Settings {
		all := append(sysctl.Conntrack(sysctl.Folder, n.Conntrack), sysctl.Forwarding...)
		if slices.ContainsFunc(families, func(f *family) bool { return f.options.LocalhostNodePorts && frame.Localhost(f.rules.Family(), n) }) {
			all = append(all, sysctl.Localnet)
		}
		return all
	}
}
