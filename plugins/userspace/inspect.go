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
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// Inspect reports the frontends of which the kernel has all sockets and rules. Without rules there are no sockets in Standby
// and Draining: there it reports what would be served.
func (p *plugin) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	there := make(map[sdk.Family]*familyRules)
	err := p.Beside(ctx, func() error {
		for _, r := range p.way.redirected() {
			tool := r.rules.Tool
			tool.Hold, tool.Commits = nil, nil
			there[r.family] = newFamilyRules(tool)
			there[r.family].Reading = func(t iptables.Tables) error { return t.WasRead(isOurs) }
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range there { // calls may run meanwhile, because it may take long
		if _, err := r.List(ctx); err != nil {
			return err
		}
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

// inspect returns the frontends whose sockets are open, or in a role without sockets those that would be served.
func (d *direct) inspect(map[sdk.Family]*familyRules) []sdk.Served {
	return d.frontends(func(name sdk.Name, f sdk.Frontend) bool { return d.role != sdk.Active || d.hasSockets(name, f) })
}

// inspect returns the frontends whose sockets are open and whose rules, with the fixed ones, are there.
func (r *redirected) inspect(there map[sdk.Family]*familyRules) []sdk.Served {
	kernel, node := there[r.family], &r.rules.node
	differs := func(c iptables.Chain) bool { text, _ := kernel.Found(c.ID); return text != iptables.Join(c.Rules) }
	lacks := func(j iptables.Jump) bool { return !kernel.HasJump(j) }
	if slices.ContainsFunc(node.chains(), differs) || slices.ContainsFunc(node.jumps(r.role), lacks) {
		return nil
	}
	return r.frontends(func(name sdk.Name, f sdk.Frontend) bool {
		return r.hasRules(kernel.Installed()[name], name, f) && r.hasSockets(name, f)
	})
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

// hasRules reports whether a piece of the kernel has the rules of a frontend that belong to its Service alone.
func (r *redirected) hasRules(piece rules.Piece, name sdk.Name, f sdk.Frontend) bool {
	differs := func(c iptables.Chain) bool { text, _ := piece.Chain(c.ID); return text != iptables.Join(c.Rules) }
	lacks := func(e rules.Entry) bool {
		rule, _ := piece.Entry(e.In, e.Key)
		return !r.rules.Trees[e.In].Shared && rule != e.Rule
	}
	claims := r.installed(name).claims
	for i := range claims {
		if !claims[i].frontend.Equal(f) {
			continue
		}
		if at := r.rulesFor(&claims[i]); len(at.entries) == 0 || slices.ContainsFunc(at.chains, differs) || slices.ContainsFunc(at.entries, lacks) {
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
