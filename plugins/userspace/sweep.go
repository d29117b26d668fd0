// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// sweep is Cleanup: it ends what this process serves, and takes the rules out.
func (p *plugin) sweep(ctx context.Context, l sdk.Leftovers, env frame.Env) ([]string, error) {
	gone := p.held()
	swept, err := sweepAll(ctx, l, env)
	if !l.DryRun {
		closed := make(map[*redirected]relay.Ports)
		for _, r := range p.way.withRules() {
			closed[r] = p.way.portals.Ports(r.family)
		}
		p.end()
		for r, ports := range closed {
			r.forgetFailed(ports)
		}
	}
	return append(gone, swept...), err
}

// held are the sockets and connections that Cleanup would end.
func (p *plugin) held() []string {
	var names []string
	for _, f := range p.way.families {
		for at, socket := range f.core().open {
			names = append(names, "socket "+at.String()+" of "+holderOf(socket).name.String())
		}
		for at := range f.core().retired {
			names = append(names, "socket "+at.String()+", which finishes flows")
		}
	}
	slices.Sort(names)
	if n := p.relay.Counts().Established; n > 0 {
		names = append(names, fmt.Sprintf("%d established connections", n))
	}
	return names
}

// sweepAll removes, or only names, every rule of ours, in both families and both
// backends, and kube-proxy's if that is asked for, and gives the kernel's parameters back.
func sweepAll(ctx context.Context, l sdk.Leftovers, env frame.Env) ([]string, error) {
	if !mayUse() {
		return nil, nil // nor could any have been written
	}
	var gone []string
	var errs []error
	var places []masquerade.Place
	for _, of := range families {
		for _, tool := range toolsInUse(ctx, of) {
			tool.Waiting, tool.Heard = env.Waiting, env.Step
			places = append(places, masquerade.At(tool))
			found, err := sweep(ctx, tool, l)
			gone = append(gone, found...)
			errs = append(errs, err)
		}
	}
	left, err := masquerade.Leave(ctx, env.Dir, mode, places, l, isOurs)
	gone = append(gone, left...)
	errs = append(errs, err)
	if l.KubeProxy {
		found, err := iptables.SweepKubeProxy(l.DryRun)
		gone = append(gone, found...)
		errs = append(errs, err)
	}
	given, err := env.GiveBack(l)
	return append(gone, given...), errors.Join(append(errs, err)...)
}

// kubeProxys are the chains of kube-proxy's userspace mode. Where there are no others
// of ours, only it made them, and they go when that is asked for.
var kubeProxys = []string{"KUBE-PORTALS-CONTAINER", "KUBE-PORTALS-HOST", "KUBE-NODEPORT-CONTAINER", "KUBE-NODEPORT-HOST", "KUBE-NODEPORT-NON-LOCAL"}

// sweep is for one family and backend.
func sweep(ctx context.Context, tool iptables.Tool, l sdk.Leftovers) ([]string, error) {
	if l == (sdk.Leftovers{}) {
		found, err := outline(ctx, tool)
		if err == nil {
			var gone []string
			gone, err = remove(ctx, tool, found, l)
			if err == nil {
				return gone, nil
			}
		}
		if ctx.Err() != nil {
			return nil, err
		} // else there are jumps where nobody would look for them
	}
	found, err := tool.Save(ctx, "nat", "filter")
	if err != nil {
		return nil, err
	}
	return remove(ctx, tool, found, l)
}

// outline is what must be known of both tables to take our chains out.
func outline(ctx context.Context, tool iptables.Tool) (iptables.Tables, error) {
	both := make(iptables.Tables)
	for _, table := range []string{"nat", "filter"} {
		found, err := tool.OutlineFree(ctx, table, isOurs)
		if err != nil {
			return nil, err
		}
		maps.Copy(both, found)
	}
	return both, nil
}

// remove takes out, or only names, what is ours of what was found.
func remove(ctx context.Context, tool iptables.Tool, found iptables.Tables, l sdk.Leftovers) ([]string, error) {
	ours := false
	for id := range found {
		ours = ours || isOurs(id) && !slices.Contains(kubeProxys, id.Chain)
	}
	if !ours && !l.KubeProxy {
		return nil, nil
	}
	var gone []string
	var all ruleset.Plan
	for _, table := range []string{"nat", "filter"} {
		b, kept := found.Leftovers(table, isOurs)
		if b.Empty() {
			continue
		}
		all = append(all, b)
		for _, step := range slices.Concat(b.Steps(), kept) {
			gone = append(gone, fmt.Sprintf("%s: %s", tool.Prefix, step))
		}
	}
	if l.DryRun {
		return gone, nil
	}
	return gone, all.Write(ctx, tool, rank, 0, func(ruleset.Plan) {})
}
