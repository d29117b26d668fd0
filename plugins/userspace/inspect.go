// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/hooks"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// Inspect reports the frontends of which the kernel has all sockets and rules. Without rules there are no sockets in Standby
// and Draining: there it reports what would be served.
func (p *plugin) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	var tools []iptables.Tool
	err := p.Beside(ctx, func() error {
		for _, r := range p.way.redirected() {
			tools = append(tools, r.rules.Tool)
		}
		return nil
	})
	if err != nil {
		return err
	}
	there, err := inspectRules(ctx, tools) // calls may run meanwhile, because it may take long
	if err != nil {
		return err
	}
	var all []sdk.Served
	err = p.Beside(ctx, func() error {
		for _, f := range p.way.families {
			all = append(all, f.inspect(there)...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return frame.TellServed(ctx, all, tell)
}

// Trace evaluates the node's rules for a packet, up to the relay's sockets. It is not supported without the right to read
// these rules, and on other systems than Linux.
func (p *plugin) Trace(ctx context.Context, packet sdk.Packet) (sdk.Traced, error) {
	t, err := hooks.Trace(ctx, packet, "the relay")
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
		err = fmt.Errorf("%w: %w", wire.ErrUnsupported, err)
	}
	return t, err
}

// An inspection has the rules in the kernel. It has those of a tree at the root of the tree, if a packet can get there.
type (
	inspection    map[inspectedRule]bool
	inspectedRule struct {
		family sdk.Family
		at     iptables.ID
		rule   iptables.Rule
	}
)

// inspectRules reads the rules in the kernel with these tools.
func inspectRules(ctx context.Context, tools []iptables.Tool) (inspection, error) {
	found := make(inspection)
	for _, tool := range tools {
		tables, err := tool.Save(ctx, "nat", "filter")
		if err == nil {
			err = tables.WasRead(isOurs)
		}
		if err != nil {
			return nil, err
		}
		for id, rules := range tables {
			for _, r := range rules {
				found[inspectedRule{tool.Family, id, r}] = true
			}
		}
		for _, t := range ruleConfig(tool.Family).Trees {
			found.reach(tool.Family, t.Tree, tables, t.Root())
		}
	}
	return found, nil
}

// reach adds the rules of a tree that packets can reach from chain id.
func (i inspection) reach(f sdk.Family, t *tree.Tree, tables iptables.Tables, id iptables.ID) {
	for _, r := range tables[id] {
		i[inspectedRule{f, t.Root(), r}] = true
		if next := (iptables.ID{Table: id.Table, Chain: r.Target()}); next != id && t.Has(next) {
			i.reach(f, t, tables, next)
		}
	}
}

// hasAll reports whether the kernel has these rules.
func (i inspection) hasAll(rules []inspectedRule) bool {
	return !slices.ContainsFunc(rules, func(r inspectedRule) bool { return !i[r] })
}

// rulesOf returns the rules of chains, jumps and entries as an inspection has them.
func (r *familyRules) rulesOf(chains []iptables.Chain, jumps []iptables.Jump, entries []rules.Entry) (all []inspectedRule) {
	for _, c := range chains {
		for _, rule := range c.Rules {
			all = append(all, inspectedRule{r.Family(), c.ID, rule})
		}
	}
	for _, j := range jumps {
		all = append(all, inspectedRule{r.Family(), j.At, j.Rule})
	}
	for _, e := range entries {
		t := r.Trees[e.In]
		all = append(all, inspectedRule{r.Family(), t.Root(), t.Line(tree.Entry{Key: e.Key, Rule: e.Rule})})
	}
	return all
}

// inspect returns the frontends whose sockets are open, or in a role without sockets those that would be served.
func (d *direct) inspect(inspection) []sdk.Served {
	return d.frontends(func(name sdk.Name, f sdk.Frontend) bool { return d.role != sdk.Active || d.hasSockets(name, f) })
}

// inspect returns the frontends whose sockets are open and whose rules, with the fixed ones, are in the kernel.
func (r *redirected) inspect(there inspection) []sdk.Served {
	if !there.hasAll(r.rules.rulesOf(r.rules.node.chains(), r.rules.node.jumps(r.role), nil)) {
		return nil
	}
	return r.frontends(func(name sdk.Name, f sdk.Frontend) bool { return r.hasRules(name, f, there) && r.hasSockets(name, f) })
}

// frontends returns the installed frontends for which has is true. A process that may not write serves none.
func (s *sockets) frontends(has func(sdk.Name, sdk.Frontend) bool) (all []sdk.Served) {
	if !s.writes {
		return nil
	}
	for name, d := range s.claims.Installed() {
		for _, f := range d.service.Frontends {
			if !has(name, f) {
				continue
			}
			served := sdk.Served{Name: name, Frontend: f}
			for _, ep := range d.service.Endpoints(f.Policy) {
				served.Endpoints = append(served.Endpoints, ep.Addr)
			}
			all = append(all, served)
		}
	}
	return all
}

// hasRules reports whether the kernel has the rules of a frontend.
func (r *redirected) hasRules(name sdk.Name, f sdk.Frontend, there inspection) bool {
	claims := r.installed(name).claims
	for i := range claims {
		if !claims[i].frontend.Equal(f) {
			continue
		}
		if at := r.rulesFor(&claims[i]); len(at.entries) == 0 || !there.hasAll(r.rules.rulesOf(at.chains, nil, at.entries)) {
			return false
		}
	}
	return true
}

// hasSockets reports whether all sockets of a frontend are open and serve it.
func (s *sockets) hasSockets(name sdk.Name, f sdk.Frontend) bool {
	for _, c := range s.installed(name).claims {
		owner := s.rivals[c.place].owner()
		if !c.frontend.Equal(f) || !c.listens || owner != nil && owner.name != name {
			continue
		}
		socket := s.open[c.place]
		if socket == nil {
			return false
		}
		if t := socket.Target(); t.Service != s.services[name].Service || !t.Frontend.Equal(f) {
			return false
		}
	}
	return true
}
