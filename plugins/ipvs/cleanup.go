// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
)

// sweepAll takes out, in both families and both backends, the virtual servers that our
// sets know of, the addresses on our device, what leads packets our way and kept them
// safe, and the sets. What kube-proxy made goes when asked for. Nobody else's virtual
// server goes, whatever is asked.
func (p *plugin) sweepAll(ctx context.Context, l sdk.Leftovers, env frame.Env) ([]string, error) {
	k, err := p.edges.reach(ctx)
	if err != nil {
		return nil, err
	}
	defer k.close()
	sweepers, err := p.sweepers(ctx, k, l)
	if err != nil {
		return nil, err
	}
	gone, err := sweep(deeds(ctx, k, sweepers), l.DryRun)
	left, err1 := p.leave(ctx, l)
	without, err2 := sweep(setDeeds(ctx, k, sweepers), l.DryRun) // of which a rule may have spoken
	given, err3 := env.GiveBack(l)
	gone, err = slices.Concat(gone, left, without), errors.Join(err, err1, err2, err3)
	return append(gone, given...), err
}

// leave lets go of what all dataplanes share.
func (p *plugin) leave(ctx context.Context, l sdk.Leftovers) ([]string, error) {
	var places []masquerade.Place
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		rulers, err := p.edges.ruled(ctx, family)
		if err != nil {
			return nil, err
		}
		for _, r := range rulers {
			places = append(places, r.place())
		}
	}
	proxied := slices.Concat(kubeProxyChains, kubeProxyShared)
	return masquerade.Leave(ctx, p.dir, mode, places, l, func(id iptables.ID) bool {
		return isOurs(id) || l.KubeProxy && slices.Contains(proxied, id)
	})
}

// A sweeper removes what there is of one family.
type sweeper struct {
	servers []step
	addrs   []step
	device  int // how many addresses go with it, if it goes
	rulers  []ruler
	rules   []ruleset.Plan // of each ruler
	kept    [][]string     // and for people: why chains stay, empty
	sets    []string       // by the kernel's names
}

// sweepers read what is there. A node without IPVS, or without ipset, has nothing of
// that kind.
func (p *plugin) sweepers(ctx context.Context, k kernel, l sdk.Leftovers) (all []*sweeper, err error) {
	var look sight
	sets := make(map[sdk.Family]setsOf)
	if k.balancer != nil {
		if look.servers, err = k.Servers(); err != nil {
			return nil, err
		}
	}
	if k.setKeeper != nil {
		if sets, err = k.Sets(ctx); err != nil {
			return nil, err
		}
	}
	if look.addrs, err = k.Addrs(); err != nil {
		return nil, err
	}
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		s := &sweeper{device: -1}
		s.find(family, sight{servers: look.servers, sets: mine(sets[family], l.KubeProxy), addrs: look.addrs.of(family)}, p.options)
		if err := p.findRules(ctx, s, family, l.KubeProxy); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	if look.addrs.device && all[0].bound()+all[1].bound() == len(look.addrs.ours) && slices.ContainsFunc(all, (*sweeper).some) {
		all[0].device = len(look.addrs.ours) // nobody else has an address on it
	}
	return all, nil
}

// mine leaves out the sets that kube-proxy made, unless they are asked for.
func mine(s setsOf, kubeProxy bool) setsOf {
	if kubeProxy {
		return s
	}
	own := setsOf{shapes: make(map[set]shape), entries: make(map[entry]note)}
	for name, shape := range s.shapes {
		if shape == right {
			own.shapes[name] = shape
		}
	}
	for e, n := range s.entries {
		if own.shapes[e.set] == right {
			own.entries[e] = n
		}
	}
	return own
}

// find lists what there is of ours.
func (s *sweeper) find(family sdk.Family, look sight, o options) {
	b := newBook(family)
	b.adopt(look, inAll, o.ExcludeCIDRs)
	for _, at := range slices.SortedFunc(maps.Keys(b.have.servers), compareServers) {
		s.servers = append(s.servers, step{verb: removeServer, server: at})
	}
	for _, addr := range slices.SortedFunc(slices.Values(look.addrs.ours), netip.Addr.Compare) {
		if b.have.vips[addr] {
			s.addrs = append(s.addrs, step{verb: unbind, addr: addr})
		}
	}
	for name := range setCount {
		if _, there := look.sets.shapes[name]; there {
			s.sets = append(s.sets, name.in(family))
		}
	}
	s.sets = append(s.sets, look.sets.relics...)
}

func (s *sweeper) some() bool { return len(s.servers)+len(s.addrs)+len(s.sets) > 0 }

func (s *sweeper) bound() int { return len(s.addrs) }

// findRules reads the tables of everything that may have rules of family.
func (p *plugin) findRules(ctx context.Context, s *sweeper, family sdk.Family, kubeProxyToo bool) error {
	rulers, err := p.edges.ruled(ctx, family)
	if err != nil {
		return err
	}
	for _, ruler := range rulers {
		all, err := ruler.Save(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			continue // this kernel lacks the backend
		}
		if p, kept := leftovers(all, kubeProxyToo); len(p) > 0 {
			s.rulers, s.rules, s.kept = append(s.rulers, ruler), append(s.rules, p), append(s.kept, kept)
		}
	}
	return nil
}

// leftovers are the jumps and chains of ours, and kube-proxy's if asked for. A chain to which
// foreign rules lead is only emptied.
func leftovers(t iptables.Tables, kubeProxyToo bool) (p ruleset.Plan, kept []string) {
	var relics []iptables.ID
	if kubeProxyToo {
		_, relics = kubeProxy(t)
	}
	goes := func(id iptables.ID) bool { return isOurs(id) || slices.Contains(relics, id) }
	for _, table := range []string{"filter", "nat", "mangle"} {
		b, stay := t.Leftovers(table, goes)
		if kept = append(kept, stay...); !b.Empty() {
			p = append(p, b)
		}
	}
	return p, kept
}
