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
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
)

// sweepAll takes out, in both families and both backends, the virtual services that our
// sets know of, the addresses on our device, what leads packets our way and kept them
// safe, and the sets. What kube-proxy made goes when asked for. No virtual service of
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
	gone, err := take(found.actions(ctx, k), l.DryRun)
	left, err1 := p.leave(ctx, l)
	without, err2 := take(found.setActions(ctx, k), l.DryRun)
	given, err3 := env.GiveBack(l)
	return slices.Concat(gone, left, without, given), errors.Join(err, err1, err2, err3)
}

// leave lets go of what all dataplanes share.
func (p *plugin) leave(ctx context.Context, l sdk.Leftovers) ([]string, error) {
	var places []masquerade.Place
	for _, of := range families {
		tools, err := p.machine.ruled(ctx, of)
		if err != nil {
			return nil, err
		}
		for _, t := range tools {
			places = append(places, t.place())
		}
	}
	proxied := slices.Concat(kubeProxyChains, kubeProxyShared)
	return masquerade.Leave(ctx, p.dir, mode, places, l, func(id iptables.ID) bool {
		return isOurs(id) || l.KubeProxy && slices.Contains(proxied, id)
	})
}

// leftovers are what Cleanup removes, of both families.
type leftovers struct {
	services []step
	addrs    []step
	device   bool // it goes, and all addresses with it
	rules    []oldRules
	sets     [][]string // of each family, by the kernel's names
}

// oldRules are what goes from the tables of one program.
type oldRules struct {
	tool ruleTool
	plan ruleset.Plan
	kept []string // for people: why chains stay, empty
}

// find reads what is there. A node without IPVS, or without ipset, has nothing of that kind.
func (p *plugin) find(ctx context.Context, k kernel, l sdk.Leftovers) (*leftovers, error) {
	seen := listing{read: inAddrs}
	if k.balancer != nil {
		seen.read |= inServices
	}
	if k.setKeeper != nil {
		seen.read |= inSets
	}
	if err := seen.take(ctx, k); err != nil {
		return nil, err
	}
	found := new(leftovers)
	for _, of := range families {
		found.add(of, reading{services: seen.services, sets: mine(seen.sets[of], l.KubeProxy), addrs: seen.addrs.of(of)}, p.options.ExcludeCIDRs)
		if err := p.findRules(ctx, found, of, l.KubeProxy); err != nil {
			return nil, err
		}
	}
	some := len(found.services)+len(found.addrs)+len(found.sets) > 0
	found.device = seen.addrs.device && some && len(found.addrs) == len(seen.addrs.ours) // no other program has an address on it
	return found, nil
}

// mine leaves out the sets that kube-proxy made, unless they are asked for.
func mine(s setsOf, kubeProxy bool) setsOf {
	if kubeProxy {
		return s
	}
	own := setsOf{shapes: maps.Clone(s.shapes), entries: maps.Clone(s.entries)}
	maps.DeleteFunc(own.shapes, func(_ set, is shape) bool { return is != right })
	maps.DeleteFunc(own.entries, func(e entry, _ note) bool { return own.shapes[e.set] != right })
	return own
}

// add lists what there is of ours in one family.
func (l *leftovers) add(of sdk.Family, seen reading, excluded []netip.Prefix) {
	o := newObjects(of)
	o.adopt(seen, inAll, excluded)
	for _, at := range slices.SortedFunc(maps.Keys(o.have.services), compareServices) {
		l.services = append(l.services, step{verb: removeService, service: at})
	}
	for _, addr := range slices.SortedFunc(maps.Keys(o.have.vips), netip.Addr.Compare) {
		l.addrs = append(l.addrs, step{verb: unbind, addr: addr})
	}
	var sets []string
	for name := range setCount {
		if _, there := seen.sets.shapes[name]; there {
			sets = append(sets, name.in(of))
		}
	}
	if sets = append(sets, seen.sets.relics...); len(sets) > 0 {
		l.sets = append(l.sets, sets)
	}
}

// findRules reads the tables of every program that may have rules of a family: jumps and
// chains of ours go, and kube-proxy's if asked for. A chain to which foreign rules lead is
// only emptied.
func (p *plugin) findRules(ctx context.Context, l *leftovers, of sdk.Family, kubeProxyToo bool) error {
	tools, err := p.machine.ruled(ctx, of)
	if err != nil {
		return err
	}
	for _, tool := range tools {
		tables, err := tool.Save(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			continue // this kernel lacks the backend
		}
		var proxied []iptables.ID
		if kubeProxyToo {
			_, proxied = kubeProxy(tables)
		}
		old := oldRules{tool: tool}
		for _, table := range tablesInOrder {
			b, kept := tables.Leftovers(table, func(id iptables.ID) bool { return isOurs(id) || slices.Contains(proxied, id) })
			if old.kept = append(old.kept, kept...); !b.Empty() {
				old.plan = append(old.plan, b)
			}
		}
		if len(old.plan) > 0 {
			l.rules = append(l.rules, old)
		}
	}
	return nil
}

// An action is one thing that Cleanup does, and what goes by it.
type action struct {
	what string
	do   func() error
}

// actions are what is done before sets are destroyed.
func (l *leftovers) actions(ctx context.Context, k kernel) (all []action) {
	w := writer{family: &family{kernel: k}}
	for _, s := range l.services {
		all = append(all, action{strings.TrimPrefix(s.String(), "remove "), func() error { return k.do(s) }})
	}
	if l.device {
		all = append(all, action{fmt.Sprintf("device %s with %d addresses", device, len(l.addrs)), k.RemoveDevice})
	} else {
		for _, s := range l.addrs {
			all = append(all, action{"address " + s.addr.String(), func() error { return w.onDevice(s) }})
		}
	}
	for _, r := range l.rules {
		what := r.tool.String() + ": " + strings.Join(slices.Concat(r.plan.Steps(), r.kept), "; ")
		all = append(all, action{what, func() error { return r.tool.Restore(ctx, r.plan.Script(r.tool.place().Backend)) }})
	}
	return all
}

// setActions are those about sets.
func (l *leftovers) setActions(ctx context.Context, k kernel) (all []action) {
	for _, sets := range l.sets {
		all = append(all, action{"sets " + strings.Join(sets, " "), func() error {
			return k.Restore(ctx, "destroy "+strings.Join(sets, "\ndestroy ")+"\n")
		}})
	}
	return all
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
