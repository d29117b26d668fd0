// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
)

// Sync makes the tables of both families follow u.
func (p *plugin) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	if err := p.turn.Take(ctx); err != nil {
		return sdk.Result{}, err
	}
	defer p.turn.Give()
	changes, err := p.state.Apply(u)
	if err != nil {
		return sdk.Result{}, err
	}
	if changes.Node || changes.Full {
		if err := checkPods(p.state.Node.Pods); err != nil {
			return sdk.Result{}, err
		}
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

// carry makes the tables of both families follow the changes; and all that was planned,
// once this process is the writer.
func (p *plugin) carry(ctx context.Context, changes sdk.Changes) (sdk.Result, error) {
	if err := p.tryLock(); err != nil {
		return sdk.Result{}, err
	}
	owed := p.lock != nil && p.claim.Owes()
	if owed {
		changes = p.everything()
	}
	var wanted map[sdk.Name]ruleset.Desired
	var beside sync.WaitGroup
	beside.Go(func() { wanted = wants(p.state, changes) })
	err := p.begin(ctx, changes.Full)
	beside.Wait()
	if err != nil {
		return sdk.Result{}, err
	}
	if changes.Node || changes.Full {
		if err := p.ground(); err != nil {
			return sdk.Result{}, err
		}
		if err := p.unset(); err != nil {
			return sdk.Result{}, err
		}
	}
	defer p.publish()
	for _, s := range p.sides {
		s.Planned = owed
	}
	result, err := p.follow(ctx, changes, wanted)
	if err != nil {
		return sdk.Result{}, err
	}
	if err := p.afterwards(changes, result.Failed); err != nil {
		return sdk.Result{}, err
	}
	return result, nil
}

// begin takes the writer's lock if it can, and reads the kernel if what is there
// is not known: both families at once, as who was killed is back that much sooner.
func (p *plugin) begin(ctx context.Context, afresh bool) error {
	p.status.Step()
	if err := p.tryLock(); err != nil {
		return err
	}
	shown, errs := make([]sdk.Role, len(p.sides)), make([]error, len(p.sides))
	var all sync.WaitGroup
	for i, s := range p.sides {
		all.Go(func() { shown[i], errs[i] = p.know(ctx, s, afresh) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if p.role == 0 {
		p.role = sdk.Standby
		for _, role := range []sdk.Role{sdk.Draining, sdk.Active} {
			if slices.Contains(shown, role) {
				p.role = role
			}
		}
	}
	return nil
}

// know has s know what the kernel has and can do, and reports the role that it shows;
// zero: nobody had to look.
func (p *plugin) know(ctx context.Context, s *side, afresh bool) (sdk.Role, error) {
	p.mayCount(ctx, s)
	if afresh && s.JustRead() {
		s.TouchAll()
		return 0, nil
	}
	if s.Known() && !afresh {
		return 0, nil
	}
	if err := s.Read(ctx); err != nil {
		return 0, err
	}
	return s.shown(), nil
}

// everything is the whole state as a change, for books that say nothing of it: what they
// had was only planned.
func (p *plugin) everything() sdk.Changes {
	for _, s := range p.sides {
		none := make(map[sdk.Name]ruleset.Desired, len(s.Owners()))
		for name := range s.Owners() {
			none[name] = ruleset.Desired{}
		}
		s.PutAll(none)
		clear(s.rests)
	}
	return sdk.Changes{Full: true, Node: true}
}

// ground tells each side what the node is like.
func (p *plugin) ground() error {
	for _, s := range p.sides {
		bound, err := bound(s.Family(), p.state.Node.ServiceCIDRs)
		if err != nil {
			return err
		}
		s.setNode(nodeConfig{
			family:    s.Family(),
			node:      p.state.Node,
			localhost: *p.options.LocalhostNodePorts && localhost(s.Family(), p.state.Node),
			liberal:   p.state.Node.Conntrack.TCPBeLiberal || liberal(),
			counted:   s.counts,
			bound:     bound,
		})
	}
	return nil
}

// localhost reports whether node ports are to be had on 127.0.0.1. IPv6 has no
// way to do it.
func localhost(f sdk.Family, n sdk.Node) bool {
	return f == sdk.IPv4 && n.TakesNodePorts(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
}

// follow writes what the changes ask for, in one family after the other. Who is
// not the writer only says what it would do.
func (p *plugin) follow(ctx context.Context, c sdk.Changes, wanted map[sdk.Name]ruleset.Desired) (sdk.Result, error) {
	result := sdk.Result{Planned: p.lock == nil}
	heavy := make(map[*side][]sdk.Name)
	for _, s := range p.sides {
		p.status.Step()
		pieces := p.render(s, c, wanted)
		s.SetComplete(s.Complete() || c.Full)
		if p.lock == nil {
			s.Forget() // the writer goes on writing
			s.PutAll(pieces)
			s.lead(p.role)
			result.Steps = append(result.Steps, s.Plan().Steps()...)
			continue
		}
		s.LimitRemovals(s.slice())
		if c.Full {
			s.LimitRemovals(0)
		}
		changing := slices.Collect(maps.Keys(pieces))
		refused := s.setApart(pieces, p.state, c.Full)
		heavy[s] = slices.DeleteFunc(changing, func(name sdk.Name) bool { return s.rests[name] == nil })
		failed, err := s.sync(ctx, pieces, p.role)
		result.Failed = append(append(result.Failed, refused...), failed...)
		if err != nil {
			return result, err
		}
	}
	return p.bring(ctx, heavy, result)
}

// bring writes the heavy Services of an update, once all others of both families are
// served, for as long as that may take; the rest of them is written between calls.
func (p *plugin) bring(ctx context.Context, heavy map[*side][]sdk.Name, result sdk.Result) (sdk.Result, error) {
	until := time.Now().Add(p.among)
	if p.role == sdk.Standby && p.stands {
		until = time.Now().Add(inStandby)
	}
	for _, s := range p.sides {
		more := func() bool { p.status.Step(); return time.Now().Before(until) }
		failed, err := s.bringAll(ctx, heavy[s], more)
		result.Failed = append(result.Failed, failed...)
		if err != nil {
			return result, err
		}
	}
	return result, nil
}

// wants are what the Services need that changed. When the node changed that is all of
// them.
func wants(state sdk.State, c sdk.Changes) map[sdk.Name]ruleset.Desired {
	wanted := make(map[sdk.Name]ruleset.Desired)
	for name := range duty.Touched(state, c, maps.Keys(wanted)) {
		if svc, ok := state.Services[name]; ok {
			wanted[name] = want(svc, state.Node)
		}
	}
	return wanted
}

// render is the pieces of s that change: those that are wanted, and those of nobody any
// more.
func (p *plugin) render(s *side, c sdk.Changes, wanted map[sdk.Name]ruleset.Desired) map[sdk.Name]ruleset.Desired {
	pieces := make(map[sdk.Name]ruleset.Desired)
	for name := range duty.Touched(p.state, c, maps.Keys(s.Owners())) {
		if now, ok := wanted[name]; ok && name.Family == s.Family() {
			pieces[name] = now
		} else if _, had := s.Owners()[name]; had && !p.state.Kept[name] {
			pieces[name] = ruleset.Desired{}
		}
	}
	for name := range p.state.Kept {
		if _, had := s.Owners()[name]; !had && name.Family == s.Family() {
			pieces[name] = s.keep(name)
		}
	}
	return pieces
}

// afterwards is what follows once the rules stand: the kernel's parameters, and
// the UDP flows that lead nowhere now.
func (p *plugin) afterwards(c sdk.Changes, failed []sdk.Failure) error {
	if p.lock == nil || p.role != sdk.Active {
		return nil
	}
	if c.Full || c.Node {
		if err := p.sysctls(); err != nil {
			return err
		}
	}
	return p.forget(c, failed)
}
