// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/sweep"
	"github.com/pointsman/pointsman/sdk"
)

// sweepAll takes out, in both families and both backends, the virtual services that our
// sets know of, the addresses on our device, what leads packets our way and kept them
// safe, and the sets. What kube-proxy made goes when asked for; unless it is, what its sets know of
// is its own, though we made it: it has come back, and took that over. No virtual service of
// another program goes, whatever is asked.
//
// Established connections need their virtual service and the address until the last moment,
// and without the rules that masquerade them a stranger would answer: so it is services,
// addresses, rules, and then the sets, of which a rule may have spoken.
func (p *plugin) sweepAll(ctx context.Context, l sdk.Leftovers, env frame.Env) ([]string, error) {
	k, err := p.machine.reach(ctx)
	if err != nil {
		return nil, err
	}
	defer k.close()
	found, err := p.find(ctx, k, l)
	if err != nil {
		return nil, err
	}
	if found.early {
		return nil, errors.New("a kube-proxy in its ipvs mode has begun here, and its sets are empty yet: what serves would go; try again once it serves, or with --kube-proxy where there is none")
	}
	gone, err := take(slices.Concat(found.servers, found.addrs), l.DryRun)
	rules, err1 := swept(l.KubeProxy).Of(ctx, l, env, p.machine.ruled)
	without, err2 := take(found.sets, l.DryRun)
	var given []string
	var err3 error
	if !found.proxied { // a kube-proxy in its ipvs mode needs the same parameters
		given, err3 = env.GiveBack(l)
	}
	return slices.Concat(gone, rules, without, given), errors.Join(err, err1, err2, err3)
}

// swept are the rules that go: jumps and chains of ours, and kube-proxy's if asked for. A chain
// to which foreign rules lead is only emptied.
func swept(kubeProxyToo bool) sweep.Rules {
	return sweep.Rules{
		Mode: mode, Rank: rank,
		Ours:   func(id iptables.ID) bool { return isOurs(id) || kubeProxyToo && isProxied(id) },
		Tables: func(ctx context.Context, tool iptables.Tool) ([]string, error) { return tool.KubeTables(ctx) },
		Leftovers: func(table string, found iptables.Tables) (iptables.Block, []string) {
			var proxied []iptables.ID
			if kubeProxyToo {
				proxied = kubeProxy(found)
			}
			return found.Leftovers(table, func(id iptables.ID) bool { return isOurs(id) || slices.Contains(proxied, id) })
		},
	}
}

// An action is one thing that Cleanup does, and what goes by it.
type action struct {
	what string
	do   func() error
}

// removals are what Cleanup removes, of both families.
type removals struct {
	servers, addrs, sets []action

	proxied bool // a kube-proxy's sets stay
	early   bool // and do not say yet what it has taken over
}

// find reads what is there. A node without IPVS, or without ipset, has nothing of that kind.
func (p *plugin) find(ctx context.Context, k kernel, l sdk.Leftovers) (*removals, error) {
	seen, err := k.read(ctx)
	if err != nil {
		return nil, err
	}
	found := new(removals)
	for _, of := range families {
		found.add(ctx, k, of, seen, l.KubeProxy, p.options.ExcludeCIDRs)
	}
	n := len(found.addrs)
	if seen.addrs.device && n == len(seen.addrs.ours) && len(found.servers)+n+len(found.sets) > 0 { // no other program has an address on it
		found.addrs = []action{{fmt.Sprintf("device %s with %d addresses", device, n), k.RemoveDevice}}
	}
	return found, nil
}

// add lists what there is of ours in one family, and kube-proxy's if that is asked for.
func (l *removals) add(ctx context.Context, k kernel, of sdk.Family, seen reading, kubeProxyToo bool, excluded []netip.Prefix) {
	ours, theirs := seen.ours(of, excluded), make(map[key]value)
	proxied := setsOf{relics: seen.sets[of].relics, proxied: seen.sets[of].proxied}
	var sets []string
	serves := false
	back := !kubeProxyToo && len(proxied.relics) > 0 // kube-proxy is
	if back {
		l.proxied = true
		theirs = reading{seen.services, map[sdk.Family]setsOf{of: proxied}, seen.addrs}.ours(of, excluded)
	}
	for _, at := range slices.SortedFunc(maps.Keys(ours), compareKeys) {
		serves = serves || at.kind == ofServer
		switch _, is := theirs[at]; {
		case is:
		case at.kind == ofServer:
			l.servers = append(l.servers, action{"server " + at.server.String(), func() error { return k.do(step{verb: removeService, service: at.server}) }})
		case at.kind == ofAddress:
			l.addrs = append(l.addrs, action{"address " + at.entry.addr.String(), func() error { return k.Unbind(at.entry.addr) }})
		case at.kind == ofSet:
			sets = append(sets, at.entry.set.in(of))
		}
	}
	l.early = l.early || back && len(proxied.proxied) == 0 && serves
	if kubeProxyToo {
		sets = append(sets, proxied.relics...)
	}
	if len(sets) > 0 {
		l.sets = append(l.sets, action{"sets " + strings.Join(sets, " "), func() error { return k.Restore(ctx, destroy(sets)) }})
	}
}

// take does all it can, and names what went; a dry run only names it.
func take(all []action, dry bool) (gone []string, err error) {
	for _, a := range all {
		if !dry {
			if failed := a.do(); failed != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", a.what, failed))
				continue
			}
		}
		gone = append(gone, a.what)
	}
	return gone, err
}
