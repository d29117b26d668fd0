// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"net/netip"
	"sync/atomic"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
)

// families are the two of IP.
var families = []sdk.Family{sdk.IPv4, sdk.IPv6}

// mode is the plugin's name, and that under which it holds locks and settings.
const mode = "ipvs"

// Description is what the plugin is, known without looking at the node.
var Description = sdk.Description{
	Name:     mode,
	Version:  "0.1.0",
	Features: sdk.Features,
	Limits:   []sdk.Limit{sdk.LimitAffinityPerFrontend},
	Options:  []byte(schema),
}

// New is the dataplane, which keeps its ledger in dir (ledger.Dir on a node).
func New(dir string) sdk.Dataplane { return newPlugin(dir, thisMachine()) }

func newPlugin(dir string, m machine) *plugin {
	p := &plugin{machine: m, dir: dir, session: new(session), parked: &parked{dests: make(map[serviceKey][]netip.AddrPort)}}
	p.Dataplane = frame.New(frame.Mode[desired]{Description: Description, Open: p.open, Sweep: p.sweepAll}, dir)
	return p
}

// A plugin is the frame around both families, and what this mode can do besides.
type plugin struct {
	*frame.Dataplane[desired]
	machine machine
	dir     string
	parked  *parked

	swapImpact atomic.Pointer[string] // what a change of mode would end; nil: nothing

	// What follows is used only where the frame calls, one goroutine at a time.
	options options
	kernel  kernel
	session *session
}

// open begins a session: is there an IPVS, are there the programs, and which of the two
// backends does the node use?
func (p *plugin) open(ctx context.Context, setup sdk.Setup, env frame.Env) (opened frame.Session[desired], err error) {
	options, err := parseOptions(setup.Options)
	if err != nil {
		return opened, err
	}
	if err := p.reachKernel(ctx, options); err != nil {
		return opened, err
	}
	tools, err := p.machine.rules(ctx, options.Backend, env.Log)
	if err != nil {
		return opened, err
	}
	s := &session{
		plugin: p, kernel: p.kernel, options: options, env: env, sysctls: setup.Sysctls,
		changes: make(map[sdk.Family]addrChanges), wake: make(chan struct{}, 1),
	}
	for _, of := range families {
		if tool, ok := tools[of]; ok {
			f := newFamily(of, tool, s)
			f.masq = &masquerade.Hold{Ledger: env.Ledger, Holder: mode, Place: tool.place()}
			s.families = append(s.families, f)
			opened.Families = append(opened.Families, f)
		}
	}
	p.options, p.session = options, s
	opened.Settings = func(n sdk.Node) sysctl.Settings { return p.machine.settings(n, options) }
	opened.Wake = s.wake
	return opened, nil
}

// reachKernel opens what leads to the kernel, once it is known that there is
// something to lead to.
func (p *plugin) reachKernel(ctx context.Context, o options) error {
	if err := p.machine.probe(ctx, o); err != nil {
		return err
	}
	if p.kernel == (kernel{}) {
		k, err := p.machine.open()
		if err != nil {
			return err
		}
		p.kernel = k
	}
	return p.kernel.allowed()
}

// Close ends what this process does beside the host's calls, lets go of the lock, and of
// the kernel, which stays as it is.
func (p *plugin) Close() error {
	err := p.Dataplane.Close()
	p.kernel.close()
	p.kernel = kernel{}
	return err
}

// Report says how far the present call is, and what a change of mode would end.
func (p *plugin) Report() sdk.Report {
	r := p.Dataplane.Report()
	if why := p.swapImpact.Load(); why != nil {
		r.SwapImpact = *why
	}
	return r
}
