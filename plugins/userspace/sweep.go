// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/sweep"
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
	rules := sweep.Rules{
		Mode: mode, Ours: isOurs, Rank: rank,
		Tables: func(context.Context, iptables.Tool) ([]string, error) { return []string{"nat", "filter"}, nil },
		Leftovers: func(table string, found iptables.Tables) (iptables.Block, []string) {
			if !l.KubeProxy && !hasOurs(found) {
				return iptables.Block{}, nil
			}
			return found.Leftovers(table, isOurs)
		},
	}
	gone, err := rules.All(ctx, l, env)
	given, unable := env.GiveBack(l)
	return append(gone, given...), errors.Join(err, unable)
}

// kubeProxys are the chains of kube-proxy's userspace mode. Where there are no others
// of ours, only it made them, and they go when that is asked for.
var kubeProxys = []string{"KUBE-PORTALS-CONTAINER", "KUBE-PORTALS-HOST", "KUBE-NODEPORT-CONTAINER", "KUBE-NODEPORT-HOST", "KUBE-NODEPORT-NON-LOCAL"}

// hasOurs reports whether a chain is there that kube-proxy did not make.
func hasOurs(found iptables.Tables) bool {
	for id := range found {
		if isOurs(id) && !slices.Contains(kubeProxys, id.Chain) {
			return true
		}
	}
	return false
}
