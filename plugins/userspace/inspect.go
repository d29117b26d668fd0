// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// Inspect tells the frontends whose every socket and rule the kernel still has, and
// those that need no socket because callers are to be turned away. Standby and Draining
// without rules have no sockets: there it tells what would be served.
func (d *Dataplane) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	laid, err := d.laid(ctx)
	if err != nil {
		return err
	}
	for _, served := range d.served(laid) {
		if err := errors.Join(ctx.Err(), tell(served)); err != nil {
			return err
		}
	}
	return nil
}

// What is laid are rules, as the kernel has them. Those of a tree stand in its root,
// if they can be reached from there.
type (
	laid     map[laidRule]bool
	laidRule struct {
		family sdk.Family
		at     iptables.ID
		rule   iptables.Rule
	}
)

// laid are the rules that the kernel has, where there are some.
func (d *Dataplane) laid(ctx context.Context) (laid, error) {
	d.mu.Lock()
	var tools []iptables.Tool
	if d.way != nil {
		for _, s := range d.way.rules.sides {
			tools = append(tools, s.Tool)
		}
	}
	d.mu.Unlock()
	found := make(laid)
	for _, tool := range tools {
		tables, err := tool.Save(ctx, "nat", "filter")
		if err != nil {
			return nil, err
		}
		for id, rules := range tables {
			for _, r := range rules {
				found[laidRule{tool.Family, id, r}] = true
			}
		}
		for _, t := range ruleConfig(tool.Family).Trees {
			found.reach(tool.Family, t.Tree, tables, t.Root())
		}
	}
	return found, nil
}

// reach adds what can be reached in t from its chain id on.
func (l laid) reach(f sdk.Family, t *tree.Tree, tables iptables.Tables, id iptables.ID) {
	for _, r := range tables[id] {
		l[laidRule{f, t.Root(), r}] = true
		if next := (iptables.ID{Table: id.Table, Chain: r.Target()}); next != id && t.Has(next) {
			l.reach(f, t, tables, next)
		}
	}
}

// has reports whether the kernel has all that c says.
func (l laid) has(f sdk.Family, c iptables.Chain) bool {
	return !slices.ContainsFunc(c.Rules, func(r iptables.Rule) bool { return !l[laidRule{f, c.ID, r}] })
}

func (d *Dataplane) served(laid laid) []sdk.Served {
	d.mu.Lock()
	defer d.mu.Unlock()
	shut := make(map[sdk.Family]bool)
	if d.way != nil {
		for _, s := range d.way.rules.sides {
			shut[s.Family()] = !s.node.ways(d.role, laid)
		}
	}
	var all []sdk.Served
	for name, s := range d.services {
		if shut[name.Family] {
			continue
		}
		svc := s.Value()
		for _, f := range svc.Frontends {
			if d.leadsTo(name, f, laid) && d.standsFor(name, f) {
				all = append(all, served(svc, f))
			}
		}
	}
	slices.SortFunc(all, func(a, b sdk.Served) int {
		if c := a.Name.Compare(b.Name); c != 0 {
			return c
		}
		return a.Frontend.Compare(b.Frontend)
	})
	return all
}

// leadsTo reports whether every rule is laid that f of a Service needs.
func (d *Dataplane) leadsTo(name sdk.Name, f sdk.Frontend, laid laid) bool {
	if d.way == nil {
		return true
	}
	rules := d.way.rules.of(name.Family)
	if rules == nil {
		return false
	}
	for _, c := range d.table.claims[name] {
		if owner, _ := d.table.owner(c.place); !c.frontend.Equal(f) || owner.name != name {
			continue
		}
		if wanted := d.desiredAt(&rules.node, c.place); len(wanted.Entries) == 0 || !rules.leads(wanted, laid) {
			return false
		}
	}
	return true
}

// ways reports whether the ways in are laid, and those from there to the sockets.
func (n *nodeConfig) ways(role sdk.Role, laid laid) bool {
	for _, j := range n.jumps(role) {
		if !laid[laidRule{n.family, j.At, j.Rule}] {
			return false
		}
	}
	return !slices.ContainsFunc(n.chains(), func(c iptables.Chain) bool { return !laid.has(n.family, c) })
}

// leads reports whether what is wanted is laid.
func (s *side) leads(wanted ruleset.Desired, laid laid) bool {
	for _, e := range wanted.Entries {
		t := s.Tree(e.In)
		if !laid[laidRule{s.Family(), t.Root(), t.Line(e.Entry)}] {
			return false
		}
	}
	return !slices.ContainsFunc(wanted.Chains, func(c iptables.Chain) bool { return !laid.has(s.Family(), c) })
}

// standsFor reports whether every socket is there that f of a Service needs.
func (d *Dataplane) standsFor(name sdk.Name, f sdk.Frontend) bool {
	if d.way == nil && d.role != sdk.Active {
		return d.role != sdk.Yielded // there are no sockets: it is what would be served
	}
	for _, c := range d.table.claims[name] {
		owner, _ := d.table.owner(c.place)
		if !c.frontend.Equal(f) || owner.name != name || owner.every() != c.every() || !c.listens {
			continue
		}
		s := d.sockets[c.place]
		if s == nil || !holderOf(s).holds(c) || s.Alive() != nil {
			return false
		}
	}
	return d.role != sdk.Yielded
}

func served(svc *sdk.Service, f sdk.Frontend) sdk.Served {
	s := sdk.Served{Name: svc.Name, Frontend: f}
	for _, ep := range svc.Endpoints(f.Policy) {
		s.Endpoints = append(s.Endpoints, ep.Addr)
	}
	return s
}

// ExportAffinity tells which client keeps which endpoint.
func (d *Dataplane) ExportAffinity(ctx context.Context, tell func(sdk.AffinityEntry) error) error {
	for _, s := range d.sticky() {
		for _, k := range s.ExportAffinity(time.Now()) {
			if err := errors.Join(ctx.Err(), tell(k)); err != nil {
				return err
			}
		}
	}
	return nil
}

// sticky are the Services whose clients keep their endpoints.
func (d *Dataplane) sticky() []*relay.Service {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []*relay.Service
	for _, s := range d.services {
		if s.Value().Affinity > 0 {
			all = append(all, s)
		}
	}
	return all
}

// ImportAffinity remembers clients of a dataplane before us, also of Services that only the
// next Full will name.
func (d *Dataplane) ImportAffinity(_ context.Context, entries []sdk.AffinityEntry) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for _, k := range entries {
		if s := d.services[k.Name]; s != nil {
			s.ImportAffinity([]sdk.AffinityEntry{k}, now)
		} else if len(d.seeds[k.Name]) < relay.MaxAffinity {
			d.seeds[k.Name] = append(d.seeds[k.Name], k)
		}
	}
	return nil
}
