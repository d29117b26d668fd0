// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// This file joins the two ways in which callers reach the relay: sockets on the
// frontends' own addresses, or portals and the rules that lead to them. All of it
// is called with mu held.

// A way is portals with their rules; nil: sockets on the frontends' addresses.
type way struct {
	portals *portals
	rules   *rules
	backend string               // as the options say it
	looked  bool                 // the kernel was asked which role it shows
	told    bool                 // it is known what is to be served
	limited *sdk.ConntrackLimits // what was set; nil: nothing yet
	fresh   map[place]bool       // of UDP: no flow that the kernel remembers leads to their sockets
	former  sharedPorts          // of a process before this one; connections may still be sent there
	steps   []string             // what the last write would have done, had it been allowed
}

// chooseWay finds out which way it is to be. One that is in use is kept.
func (d *Dataplane) chooseWay(ctx context.Context, o options) error {
	if o.redirect == redirectNever || o.redirect == redirectAuto && !mayUse() {
		d.status.log.Load().Info("other software finds no chain " + masquerade.Mark + ": this process writes no rules")
		d.leave()
		return nil
	}
	if d.way != nil && d.way.backend == o.backend {
		return nil
	}
	found, err := openRules(ctx, d.status, d.claim, d.ledgerDir, o.backend)
	switch {
	case err != nil && o.redirect == redirectAuto && ctx.Err() == nil:
		d.status.log.Load().Info("listening on the frontends' own addresses only, and other software finds no chain "+masquerade.Mark, "why", err)
		d.leave()
		return nil
	case err != nil:
		return err
	}
	d.leave()
	d.way = &way{portals: newPortals(d.relay), rules: found, backend: o.backend, fresh: make(map[place]bool)}
	d.forgetSockets()
	return nil
}

// leave ends the present way, with every socket that was opened for it.
func (d *Dataplane) leave() {
	if d.way == nil {
		return
	}
	w := d.way
	d.way = nil
	d.forgetSockets()
	w.portals.Close()
	if err := w.rules.close(); err != nil {
		d.status.log.Load().Warn("cannot let go of the lock", "err", err)
	}
	d.relay.SetMark(0)
}

// nodePorts are the addresses at which places for node ports stand.
func (d *Dataplane) nodePorts() []netip.Addr {
	if d.way != nil {
		return everywhere
	}
	return d.ground.nodePorts
}

// acts says what a change does to sockets in the present role.
func (d *Dataplane) acts() act {
	switch {
	case d.role == sdk.Yielded:
		return plans
	case d.way != nil && d.way.rules.lock == nil:
		return plans
	case d.way != nil || d.role == sdk.Active:
		return opens
	}
	return probes
}

// An act is what becomes of a socket that is wanted.
type act uint8

const (
	plans  act = iota // nothing
	probes            // it is found out whether it could be opened
	opens
)

// prepareWay takes the right to write, and finds out the role that the kernel
// shows.
func (d *Dataplane) prepareWay(ctx context.Context) error {
	if d.way == nil || d.role == sdk.Yielded {
		return nil
	}
	r := d.way.rules
	if err := r.tryLock(); err != nil {
		return err
	}
	if d.way.looked || r.lock == nil {
		return nil
	}
	role, err := r.shown(ctx)
	if err != nil {
		return err
	}
	r.askPatience(ctx)
	d.way.former = make(sharedPorts)
	for _, s := range r.sides {
		f, ports := s.Family(), s.formerDoors()
		if ports != (relay.Ports{}) {
			d.way.former[f] = ports
			d.way.portals.Prefer(f, ports)
		}
	}
	d.way.looked = true
	if d.role == sdk.Standby {
		d.role = role
	}
	return nil
}

// stake notes which rules the places need now.
func (d *Dataplane) stake(touched map[place]bool) {
	if d.way == nil {
		return
	}
	for p := range touched {
		d.gotOn()
		if s := d.way.rules.of(sdk.FamilyOf(p.addr.Addr())); s != nil {
			s.Put(key{caught: p}, d.desiredAt(&s.node, p))
		}
	}
}

// desiredAt is what the frontend at p needs.
func (d *Dataplane) desiredAt(n *nodeConfig, p place) ruleset.Desired {
	c, owned := d.table.owner(p)
	s := d.services[c.name]
	if !owned || s == nil {
		return ruleset.Desired{}
	}
	caught := catch{node: n, service: s.Value(), frontend: c.frontend}
	if socket := d.sockets[p]; socket != nil && p.protocol == sdk.UDP {
		caught.udp = socket.Port()
	}
	return caught.desired()
}

// stakeHealth lets in who asks for the health of a Service.
func (d *Dataplane) stakeHealth(name sdk.Name) {
	if d.way == nil {
		return
	}
	rules := d.way.rules.of(name.Family)
	if rules == nil {
		return
	}
	var wanted ruleset.Desired
	if s := d.services[name]; s != nil && s.Value().HealthPort != 0 {
		wanted = health(s.Value().HealthPort)
	}
	rules.Put(key{health: name}, wanted)
}

// reframe notes what the node is like, and returns the places whose rules
// depend on what is other than before: all of them when the node is, or where packets
// are sent to; node ports, when other addresses take them.
func (d *Dataplane) reframe(node bool) []place {
	if d.way == nil {
		return nil
	}
	g := d.ground
	moved := d.way.portals.settle(g)
	for _, family := range moved {
		d.rebind(family)
	}
	ports := false
	for _, s := range d.way.rules.sides {
		n := &s.node
		ports = ports || !slices.Equal(n.nodePorts, g.nodePorts)
		n.node, n.nodePorts, n.to = g.node, g.nodePorts, *d.way.portals.to[index(n.family)].Load()
		d.relay.SetMark(n.mark())
	}
	switch {
	case node || len(moved) > 0:
		return d.everyPlace()
	case ports:
		return slices.DeleteFunc(d.everyPlace(), func(p place) bool { return !p.addr.Addr().IsUnspecified() })
	}
	return nil
}

// rebind lets go of the UDP sockets of a family, because packets are sent to
// another address from now on.
func (d *Dataplane) rebind(f sdk.Family) {
	for p, s := range d.sockets {
		if p.protocol == sdk.UDP && sdk.FamilyOf(p.addr.Addr()) == f {
			delete(d.sockets, p)
			s.Close()
		}
	}
}

// lay writes the rules into the kernel, and does what comes after.
func (d *Dataplane) lay(ctx context.Context, touched map[place]bool) error {
	if d.way == nil || !d.way.told {
		return nil
	}
	r := d.way.rules
	for _, s := range r.sides {
		s.node.doors = d.way.portals.Ports(s.Family())
	}
	steps, err := r.write(ctx, d.role)
	d.way.steps = steps
	if err != nil {
		return err
	}
	if err := d.setLimits(); err != nil {
		return err
	}
	return d.forgetFlows(touched)
}

// refuseFamily refuses what this node has no rules for.
func (d *Dataplane) refuseFamily(f sdk.Family) error {
	if d.way == nil || d.way.rules.has(f) {
		return nil
	}
	return &sdk.Refusal{Field: "name.family", Why: fmt.Sprintf("this node has no rules for %s", f), Try: "install ip6tables"}
}

// limits are those that hold here.
func (d *Dataplane) limits() []sdk.Limit {
	if d.way != nil {
		return slices.Clone(Description.Limits)
	}
	return append(slices.Clone(Description.Limits), sdk.LimitNoDrop, sdk.LimitOwnAddressesOnly)
}

// openNew opens a socket for what is sent to p.
func (d *Dataplane) openNew(ctx context.Context, p place) (relay.Socket, error) {
	if d.way == nil {
		return d.relay.Listen(ctx, p.protocol, p.addr)
	}
	if p.protocol == sdk.UDP {
		d.way.fresh[p] = true
	}
	return d.way.portals.open(ctx, p)
}

// playWay plays role with rules. The sockets stay in every role: only the rules
// lead to them.
func (d *Dataplane) playWay(ctx context.Context, role sdk.Role) error {
	if role == sdk.Yielded {
		d.role = role
		return d.way.rules.unlock()
	}
	before := d.acts()
	if d.role == sdk.Yielded {
		d.role = sdk.Standby
	}
	if err := d.prepareWay(ctx); err != nil {
		return err
	}
	d.role = role
	if !d.way.told {
		return nil // the first update writes it: until then the kernel keeps what it has
	}
	var places []place // of which more than the ways in may be otherwise
	if role == sdk.Active || d.acts() != before {
		places = d.everyPlace()
	}
	if d.writes() && d.claim.Owes() {
		failed, err := d.writePlanned(ctx)
		if err == nil {
			d.claim.Wrote(failed)
		}
		return err
	}
	_, err := d.carryOut(ctx, nil, places...)
	return err
}

// standDown yields because another process cleaned up. What is established stays; a
// host that wants this process to serve says so by a role.
func (d *Dataplane) standDown() {
	d.status.log.Load().Warn("another process cleaned up: standing down")
	d.role = sdk.Yielded
	if err := d.way.rules.unlock(); err != nil {
		d.status.log.Load().Warn("cannot give up the right to write", "err", err)
	}
}

// plannedRules are the steps that another process keeps us from taking.
func (d *Dataplane) plannedRules() []string {
	if d.way == nil {
		return nil
	}
	return slices.Clone(d.way.steps)
}
