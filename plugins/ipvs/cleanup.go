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

// sweepAll removes, in both families and both backends, the virtual servers that our sets name, the addresses
// on our device, our rules and our sets. Objects that only kube-proxy creates are removed if l.KubeProxy is
// set. Otherwise, if kube-proxy has come back, everything that its sets name is kube-proxy's and stays, even if
// we created it. Virtual servers of other programs always stay.
//
// The order is servers, addresses, rules, sets. Established connections need their virtual server and its
// address, and if the masquerade rules were removed first, replies would come from an address that the client
// does not know. Sets are last because rules refer to them.
func (p *plugin) sweepAll(ctx context.Context, l sdk.Leftovers, env frame.Env) ([]string, error) {
	k, err := p.machine.open(true)
	if err != nil {
		return nil, err
	}
	defer k.close()
	found, err := p.find(ctx, k, l)
	if err != nil {
		return nil, err
	}
	if found.kubeProxyIsEmpty {
		return nil, errors.New("kube-proxy in ipvs mode has started here and its sets are still empty: cleanup would remove what serves; try again once it serves, or with --kube-proxy if it does not run")
	}
	gone, err := removeAll(slices.Concat(found.servers, found.addrs), l.DryRun)
	rules, err1 := sweepRules(l.KubeProxy).Of(ctx, l, env, p.machine.toolsInUse)
	without, err2 := removeAll(found.sets, l.DryRun)
	var given []string
	var err3 error
	if !found.kubeProxyIsBack { // kube-proxy needs the same parameters
		given, err3 = env.GiveBack(l)
	}
	return slices.Concat(gone, rules, without, given), errors.Join(err, err1, err2, err3)
}

// sweepRules returns the rules to remove: our jumps and chains, and kube-proxy's if asked for. A chain to which
// foreign rules lead is emptied and kept.
func sweepRules(kubeProxyToo bool) sweep.Rules {
	return sweep.Rules{
		Mode: mode, Rank: rank, Tables: []string{"filter", "mangle", "nat"},
		Ours: func(id iptables.ID) bool { return isOurs(id) || kubeProxyToo && isProxied(id) },
		Leftovers: func(table string, found iptables.Tables) (iptables.Block, []string) {
			var proxied []iptables.ID
			if kubeProxyToo {
				proxied = findKubeProxyChains(found)
			}
			return found.Leftovers(table, func(id iptables.ID) bool { return isOurs(id) || slices.Contains(proxied, id) })
		},
	}
}

// An action is one removal, with its description.
type action struct {
	what string
	do   func() error
}

// removals are the actions of a cleanup of both families.
type removals struct {
	servers, addrs, sets []action

	kubeProxyIsBack  bool // kube-proxy runs in ipvs mode, so its sets stay
	kubeProxyIsEmpty bool // these sets are empty, so it is unknown what kube-proxy has taken over
}

// find returns what to remove. A node without IPVS or without ipset has nothing of that kind.
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
	if seen.addrs.device && n == len(seen.addrs.ours) && len(found.servers)+n+len(found.sets) > 0 { // no other program has an address on the device
		found.addrs = []action{{fmt.Sprintf("device %s with %d addresses", device, n), k.RemoveDevice}}
	}
	return found, nil
}

// add adds the actions for one family.
func (l *removals) add(ctx context.Context, k kernel, of sdk.Family, seen reading, kubeProxyToo bool, excluded []netip.Prefix) {
	ours, theirs := seen.ours(of, excluded), make(map[key]value)
	proxied := setsOf{kubeProxySets: seen.sets[of].kubeProxySets, kubeProxyEntries: seen.sets[of].kubeProxyEntries}
	var sets []string
	serves := false
	back := !kubeProxyToo && len(proxied.kubeProxySets) > 0 // kube-proxy has come back
	if back {
		l.kubeProxyIsBack = true
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
			sets = append(sets, at.entry.set.name(of))
		}
	}
	l.kubeProxyIsEmpty = l.kubeProxyIsEmpty || back && len(proxied.kubeProxyEntries) == 0 && serves
	if kubeProxyToo {
		sets = append(sets, proxied.kubeProxySets...)
	}
	if len(sets) > 0 {
		l.sets = append(l.sets, action{"sets " + strings.Join(sets, " "), func() error { return k.Restore(ctx, destroyLines(sets)) }})
	}
}

// removeAll runs all actions, also after an error, and returns the descriptions of those that succeeded. With
// dry it only returns the descriptions.
func removeAll(all []action, dry bool) (gone []string, err error) {
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
