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

// sweep implements Cleanup: it removes our rules in both families and both backends, and with l.KubeProxy those of kube-proxy,
// restores the kernel parameters, closes all sockets and connections, and removes the VIPs. The kernel may still redirect
// failed connections to the closed ports, so it deletes their conntrack entries.
func (p *plugin) sweep(ctx context.Context, l sdk.Leftovers, env frame.Env) ([]string, error) {
	p.log = env.Log
	gone := p.describeSockets()
	var ports map[sdk.Family][]uint16
	var err error
	if mayWrite() { // otherwise this process cannot have written rules
		ports = redirectedPorts(ctx)
		var rules, parameters []string
		var unable error
		rules, err = sweepRules(l.KubeProxy).All(ctx, l, env)
		parameters, unable = env.GiveBack(l)
		gone, err = slices.Concat(gone, rules, parameters), errors.Join(err, unable)
	}
	if !l.DryRun {
		p.end()
		for f, closed := range ports {
			p.forgetFailed(f, closed)
		}
	}
	addresses, unable := p.vips.sweep(l.DryRun)
	return append(gone, addresses...), errors.Join(err, unable)
}

// redirectedPorts returns the TCP ports to which rules of any process redirect.
func redirectedPorts(ctx context.Context) map[sdk.Family][]uint16 {
	all := make(map[sdk.Family][]uint16)
	for _, f := range families {
		for _, tool := range iptables.ToolsInUse(ctx, f) {
			ports := portsIn(func(id iptables.ID) (string, bool) {
				rules, exists, _ := tool.List(ctx, id) // if that fails, Rules.All fails, too
				return fmt.Sprint(rules), exists
			})
			if ports != (relay.Ports{}) {
				all[f] = append(all[f], ports[:]...)
			}
		}
	}
	return all
}

// describeSockets describes the sockets and connections that Cleanup closes.
func (p *plugin) describeSockets() (what []string) {
	n := 0
	for _, f := range p.way.families {
		n += len(f.core().open) + len(f.core().leaving)
	}
	if n > 0 {
		what = append(what, fmt.Sprintf("sockets: %d", n))
	}
	if n := p.relay.Counters.Open(); n > 0 {
		what = append(what, fmt.Sprintf("connections and UDP flows: %d", n))
	}
	return what
}

// sweepRules describes the rules to remove.
func sweepRules(kubeProxyToo bool) sweep.Rules {
	return sweep.Rules{
		Mode: mode, Ours: isOurs, Rank: rank, Tables: []string{"nat", "filter"},
		Leftovers: func(table string, found iptables.Tables) (iptables.Block, []string) {
			if !kubeProxyToo && !hasOurs(found) {
				return iptables.Block{}, nil
			}
			return found.Leftovers(table, isOurs)
		},
	}
}

// kubeProxys are the chains that kube-proxy's userspace mode created, too. If there are no other chains of ours, they are
// kube-proxy's, and only removed with Leftovers.KubeProxy.
var kubeProxys = []string{"KUBE-PORTALS-CONTAINER", "KUBE-PORTALS-HOST", "KUBE-NODEPORT-CONTAINER", "KUBE-NODEPORT-HOST", "KUBE-NODEPORT-NON-LOCAL"}

// hasOurs reports whether there are chains that only this mode creates.
func hasOurs(found iptables.Tables) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(found)), func(id iptables.ID) bool { return isOurs(id) && !slices.Contains(kubeProxys, id.Chain) })
}
