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

// mode is the plugin's name, and that under which it holds locks and settings.
const mode = "iptables"

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
	p.Dataplane = frame.New(frame.Mode[rules.Piece]{Description: Description, Open: p.open, Sweep: sweepAll, Elsewhere: swept(false).Elsewhere}, dir)
	return p
}

// A plugin is the frame around both families, and what this mode can do besides.
type plugin struct {
	*frame.Dataplane[rules.Piece]
	tally frame.Tally

	mu       sync.Mutex // guards what follows, which is read beside a call
	families []*family
}

// open begins a session: which programs are there, and which of the two backends does the
// node use?
func (p *plugin) open(ctx context.Context, setup sdk.Setup, env frame.Env) (frame.Session[rules.Piece], error) {
	options, err := parseOptions(setup.Options)
	if err != nil {
		return frame.Session[rules.Piece]{}, err
	}
	families, err := openFamilies(ctx, options, env)
	if err != nil {
		return frame.Session[rules.Piece]{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.families = families
	session := frame.Session[rules.Piece]{Settings: settingsFor(families)}
	for _, f := range families {
		session.Families = append(session.Families, f)
	}
	return session, nil
}

// tools are the programs by which the rules of each family are read.
func (p *plugin) tools() []iptables.Tool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []iptables.Tool
	for _, f := range p.families {
		all = append(all, f.reader)
	}
	return all
}

// Report says how far the present call is, and what the kernel has counted.
func (p *plugin) Report() sdk.Report {
	r := p.Dataplane.Report()
	r.Samples = append(slices.Clip(r.Samples), accountSamples()...)
	r.Dropped = p.tally.Read(p.counted)
	return r
}

// openFamilies finds the programs of each family that this node has.
func openFamilies(ctx context.Context, o options, env frame.Env) ([]*family, error) {
	tools, err := iptables.OpenAll(ctx, o.Backend, env.Note)
	if err != nil {
		return nil, err
	}
	commits := new(iptables.Commits)
	var families []*family
	for _, tool := range tools {
		tool.Waiting, tool.Heard, tool.Commits = env.Waiting, env.Step, commits
		f := newFamily(tool, o, env)
		f.rules.Masquerade = &masquerade.Hold{Ledger: env.Ledger, Holder: mode, Tool: f.rules.Tool}
		families = append(families, f)
	}
	return families, nil
}

// options are what the host's file may say of this plugin.
type options struct {
	Backend            string `json:"backend"`
	LocalhostNodePorts bool   `json:"localhostNodePorts"`
}

// schema describes the options, for people that write the file.
const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "backend": {"enum": ["auto", "nft", "legacy"], "default": "auto", "x-pointsman-fixed": true, "description": "which of the kernel's two rule machines to write to; auto: the one in use on the node"},
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

// settingsFor are the kernel's parameters that a node asks for, where these families are
// served. While the kernel routes 127.0.0.0/8 the guard must stand: the frame sets them after
// the rules, and gives them back before.
func settingsFor(families []*family) func(sdk.Node) sysctl.Settings {
	return func(n sdk.Node) sysctl.Settings {
		all := append(sysctl.Conntrack(sysctl.Folder, n.Conntrack), sysctl.Forwarding...)
		if slices.ContainsFunc(families, func(f *family) bool { return f.options.LocalhostNodePorts && frame.Localhost(f.rules.Family(), n) }) {
			all = append(all, sysctl.Localnet)
		}
		return all
	}
}
