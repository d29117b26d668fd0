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
	"github.com/pointsman/pointsman/plugins/internal/sweep"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// sweep is Cleanup: it ends what this process serves, and takes the rules out. Then no socket
// is behind the ports to which the kernel may still redirect clients. Addresses are removed last:
// those that are noted, but for what another process of this mode serves.
func (p *plugin) sweep(ctx context.Context, l sdk.Leftovers, env frame.Env) ([]string, error) {
	p.log = env.Log
	gone := p.held()
	var closed map[sdk.Family][]uint16
	if !l.DryRun && mayUse() {
		closed = p.doors(ctx)
	}
	swept, err := sweepAll(ctx, l, env)
	if !l.DryRun {
		p.end()
		for f, ports := range closed {
			p.forgetFailed(f, ports)
		}
	}
	removed, unable := p.adding.sweep(ctx, l.DryRun)
	return slices.Concat(gone, swept, removed), errors.Join(err, unable)
}

// doors are the ports of TCP to which rules lead now, whichever process wrote them, those of
// this process, and those of the one before it.
func (p *plugin) doors(ctx context.Context) map[sdk.Family][]uint16 {
	all := make(map[sdk.Family][]uint16)
	note := func(f sdk.Family, ports relay.Ports) {
		if ports != (relay.Ports{}) {
			all[f] = append(all[f], ports[:]...)
		}
	}
	for _, f := range families {
		for _, tool := range iptables.ToolsInUse(ctx, f) {
			note(f, ledTo(func(id iptables.ID) string {
				rules, _, _ := tool.List(ctx, id) // what cannot be read cannot be removed: sweepAll says so
				return fmt.Sprint(rules)
			}))
		}
	}
	for _, r := range p.way.withRules() {
		note(r.family, r.former)
		note(r.family, r.portals.Ports())
	}
	return all
}

// held are the sockets and connections that Cleanup would end.
func (p *plugin) held() []string {
	var names []string
	for _, f := range p.way.families {
		for at, socket := range f.core().open {
			names = append(names, "socket "+at.String()+" of "+socket.Target().Service.Name().String())
		}
		for at := range f.core().leaving {
			names = append(names, "socket "+at.String()+", which finishes flows")
		}
	}
	slices.Sort(names)
	if n := p.relay.Counters.Established.Load(); n > 0 {
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
	gone, err := swept(l.KubeProxy).All(ctx, l, env)
	given, unable := env.GiveBack(l)
	return append(gone, given...), errors.Join(err, unable)
}

// swept are the rules that go.
func swept(kubeProxyToo bool) sweep.Rules {
	return sweep.Rules{
		Mode: mode, Ours: isOurs, Rank: rank,
		Tables: func(context.Context, iptables.Tool) ([]string, error) { return []string{"nat", "filter"}, nil },
		Leftovers: func(table string, found iptables.Tables) (iptables.Block, []string) {
			if !kubeProxyToo && !hasOurs(found) {
				return iptables.Block{}, nil
			}
			return found.Leftovers(table, isOurs)
		},
	}
}

// kubeProxys are the chains of kube-proxy's userspace mode. Where there are no others
// of ours, only it made them, and they go when that is asked for.
var kubeProxys = []string{"KUBE-PORTALS-CONTAINER", "KUBE-PORTALS-HOST", "KUBE-NODEPORT-CONTAINER", "KUBE-NODEPORT-HOST", "KUBE-NODEPORT-NON-LOCAL"}

// hasOurs reports whether a chain is there that kube-proxy did not make.
func hasOurs(found iptables.Tables) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(found)), func(id iptables.ID) bool { return isOurs(id) && !slices.Contains(kubeProxys, id.Chain) })
}
