// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/sdk"
)

// Sync makes the kernel follow u.
func (p *plugin) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	if err := p.take(ctx); err != nil {
		return sdk.Result{}, err
	}
	defer p.turn.Give()
	changes, err := p.state.Apply(u)
	if err != nil {
		return sdk.Result{}, err
	}
	result, err := p.carry(ctx, changes)
	if err != nil {
		return sdk.Result{}, err
	}
	p.state.Confirm(result.Failed...)
	return p.claim.Took(u, result), nil
}

// writePlanned writes what was planned while another process was the writer.
func (p *plugin) writePlanned(ctx context.Context) ([]sdk.Failure, error) {
	result, err := p.carry(ctx, sdk.Changes{})
	if err == nil {
		p.state.Confirm(result.Failed...)
	}
	return result.Failed, err
}

// carry makes the kernel follow the changes; and all that was planned, once this process
// is the writer.
func (p *plugin) carry(ctx context.Context, changes sdk.Changes) (sdk.Result, error) {
	if err := p.begin(ctx, changes.Full); err != nil {
		return sdk.Result{}, err
	}
	owed := p.lock != nil && p.claim.Owes()
	if owed {
		changes.Node = true
		for _, s := range p.sides {
			s.forgetPlan()
		}
	}
	if err := p.prepare(changes); err != nil {
		return sdk.Result{}, err
	}
	defer p.publish()
	result := sdk.Result{Planned: p.lock == nil}
	heavy := make(map[*side][]sdk.Name)
	for _, s := range p.sides {
		pieces, failed := p.render(s, changes)
		result.Failed = append(result.Failed, failed...)
		if p.lock == nil {
			s.known = false // the writer goes on writing
			s.book.put(pieces)
			result.Steps = append(result.Steps, s.book.plan().steps()...)
			continue
		}
		s.planned = owed
		heavy[s] = s.setApart(pieces)
		failed, err := s.sync(ctx, pieces)
		result.Failed = append(result.Failed, failed...)
		if err != nil {
			return sdk.Result{}, err
		}
	}
	failed, err := p.bring(ctx, heavy)
	if err != nil {
		return sdk.Result{}, err
	}
	result.Failed = append(result.Failed, failed...)
	changes.Full = changes.Full || owed
	if err := p.forget(changes, result.Failed); err != nil {
		return sdk.Result{}, err
	}
	return result, nil
}

// forgetPlan has the book say nothing of any Service: what it had was only planned.
func (s *side) forgetPlan() {
	none := make(map[sdk.Name]piece, len(s.book.pieces))
	for name := range s.book.pieces {
		none[name] = piece{}
	}
	s.book.put(none)
	s.book.adoptMarks()
	clear(s.rests)
}

// begin takes the writer's lock if it can, and reads the kernel if what is there is
// not known.
func (p *plugin) begin(ctx context.Context, afresh bool) error {
	p.status.Step()
	if err := p.tryLock(); err != nil {
		return err
	}
	if !afresh && !slices.ContainsFunc(p.sides, func(s *side) bool { return !s.known }) {
		return nil
	}
	role, err := p.read(ctx, inAll)
	if err != nil {
		return err
	}
	if p.role == 0 {
		return p.setRole(role)
	}
	return nil
}

// read takes parts of what the kernel has into the books, and reports the role it shows.
func (p *plugin) read(ctx context.Context, which parts) (sdk.Role, error) {
	all, err := p.look(ctx, which)
	if err != nil {
		return 0, err
	}
	role := sdk.Standby
	for _, s := range p.sides {
		family := s.book.ground.family
		seen := sight{servers: all.servers, sets: all.sets[family], addrs: all.addrs.of(family)}
		if which.has(inRules(family)) {
			if seen.tables, err = s.saved(ctx); err != nil {
				return 0, fmt.Errorf("read %s tables: %w", family, err)
			}
		}
		shown := s.book.adopt(seen, which, p.options.ExcludeCIDRs)
		s.known = s.known || which == inAll
		if which.has(inRules(family)) {
			s.masq.Doubt()
		}
		if role != sdk.Active && shown != sdk.Standby {
			role = shown
		}
	}
	return role, nil
}

// Sights are what is read of both families at once.
type sights struct {
	servers map[server]virtual
	sets    map[sdk.Family]setsOf
	addrs   addresses
}

func (p *plugin) look(ctx context.Context, which parts) (v sights, err error) {
	if which.has(inServers) {
		if v.servers, err = p.kernel.Servers(); err != nil {
			return v, err
		}
	}
	if which.has(inSets) {
		if v.sets, err = p.kernel.Sets(ctx); err != nil {
			return v, err
		}
	}
	if which.has(inAddrs) {
		v.addrs, err = p.kernel.Addrs()
	}
	return v, err
}

// prepare is what comes before any Service: the kernel's parameters, and what the
// node is like.
func (p *plugin) prepare(c sdk.Changes) error {
	if !c.Full && !c.Node {
		return nil
	}
	if p.lock != nil {
		if err := p.sysctls(); err != nil {
			return err
		}
		if err := p.seeUntracked(); err != nil {
			return err
		}
		if t := p.options.timeouts(); t != (timeouts{}) {
			if err := p.kernel.SetTimeouts(t); err != nil {
				return err
			}
		}
	}
	for _, s := range p.sides {
		s.book.setGround(p.groundOf(s))
	}
	return nil
}

// groundOf is what the node is like now.
func (p *plugin) groundOf(s *side) ground {
	g := ground{family: s.book.ground.family, node: p.state.Node, scheduler: p.options.Scheduler}
	for addr := range s.book.have.others {
		if p.state.Node.TakesNodePorts(addr) && !addr.IsLoopback() && !duty.OnLink(addr) {
			g.addrs = append(g.addrs, addr)
		}
	}
	slices.SortFunc(g.addrs, netip.Addr.Compare)
	return g
}

// render is the pieces of the Services that changed. When the node changed that is
// all of them.
func (p *plugin) render(s *side, c sdk.Changes) (map[sdk.Name]piece, []sdk.Failure) {
	pieces := make(map[sdk.Name]piece)
	var failed []sdk.Failure
	for name := range duty.Touched(p.state, c, maps.Keys(s.book.pieces)) {
		svc, ok := p.state.Services[name]
		_, had := s.book.pieces[name]
		switch {
		case ok && name.Family == s.book.ground.family:
			piece, err := s.book.render(svc)
			if err != nil {
				failed = append(failed, sdk.Failure{Name: name, Err: err})
				if kept := s.book.keep(name); !had && !kept.empty() {
					pieces[name] = kept // what a process before this one made of it
				}
				continue
			}
			pieces[name] = piece
		case had && !p.state.Kept[name]:
			pieces[name] = piece{}
		}
	}
	for name := range p.state.Kept {
		if _, had := s.book.pieces[name]; !had && name.Family == s.book.ground.family {
			pieces[name] = s.book.keep(name)
		}
	}
	return pieces, failed
}

// render is the piece of svc, with a mark of its own if it needs one.
func (b *book) render(svc sdk.Service) (piece, error) {
	if err := tooMany(svc); err != nil {
		return piece{}, err
	}
	var mark uint32
	if needsMark(svc) {
		mark = b.marks.take(svc.Name, b.ground)
	}
	return b.ground.want(svc, mark)
}
