// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A direct serves one IP family by sockets at the frontends' own addresses. It has them
// only while it is Active.
type direct struct {
	sockets
	adding   *adding
	unneeded map[netip.Addr]bool // addresses that no Service names any more
	lost     map[netip.Addr]bool // addresses that another program removed
	strays   bool                // what processes before this one added is still to be looked for
}

func newDirect(p *process, f sdk.Family, a *adding) *direct {
	return &direct{sockets: newSockets(p, f), adding: a, unneeded: make(map[netip.Addr]bool), lost: make(map[netip.Addr]bool)}
}

// Hold lets go of all sockets when this process is to serve no more. A successor shares
// the ports of UDP, and half of the datagrams would come to this process: so these flows end.
func (d *direct) Hold(lock *ledger.Lock) {
	d.writes = lock != nil
	if d.writes {
		return
	}
	d.handover.withdraw()
	_ = d.adding.letGo() // closing a lock's file fails only if it is closed
	for p, socket := range d.open {
		if p.protocol == sdk.UDP {
			delete(d.open, p)
			socket.Close()
		}
	}
	d.letGo()
}

// letGo of all sockets. What they have begun goes on.
func (d *direct) letGo() {
	for p := range d.open {
		d.release(p)
	}
	clear(d.owed)
}

// Adopt compares anew what is open: nothing that another process did is ours. The role is
// the one that sockets were opened for.
func (d *direct) Adopt(ctx context.Context, _ frame.Parts) (sdk.Role, error) {
	d.touchAll()
	d.strays = true
	return max(d.role, sdk.Standby), ctx.Err()
}

// Ours reports whether this process listens: nothing of another one is left.
func (d *direct) Ours() bool { return len(d.open) > 0 }

// Node takes what the host says of the node, and reads its addresses.
func (d *direct) Node(n sdk.Node) error { return d.read(n) }

// Role is what the next plan opens sockets for, or lets go of them.
func (d *direct) Role(r sdk.Role) error {
	if r != d.role {
		d.touchAll()
	}
	d.role = r
	return nil
}

// Want is the places of a Service, and a node port's are at each address that takes them.
func (d *direct) Want(svc sdk.Service) (*desired, error) { return want(svc, d.machine.nodePorts) }

// Plan is which addresses are added and removed, and which sockets are opened and closed.
func (d *direct) Plan() frame.Plan { return directPlan{d, d.addressSteps(), d.plan()} }

type directPlan struct {
	*direct
	addresses []string
	steps     []step
}

// Steps are those of a process that is Active.
func (p directPlan) Steps() []string { return append(p.addresses, texts(p.steps)...) }

// Apply opens sockets before it closes others, and adds addresses before the ones and removes
// them after the others. In a role without sockets it finds out whether they could be opened.
func (p directPlan) Apply(ctx context.Context) ([]sdk.Failure, error) {
	closed, err := p.acquire(ctx)
	if err != nil {
		return nil, err
	}
	if closed {
		p.steps = p.plan()
	}
	if p.role == sdk.Active && slices.ContainsFunc(p.steps, func(s step) bool { return s.verb == open }) {
		if err := p.handover.take(ctx); err != nil {
			p.log.Warn("the process that serves does not give its ports up", "err", err)
		}
	}
	steps, failed, err := p.prepare(ctx, p.steps, p.listen)
	if err != nil {
		return nil, err
	}
	p.commit(steps)
	p.unwanted()
	p.finish(steps)
	if p.role == sdk.Active {
		p.handover.offer()
	} else {
		p.handover.withdraw()
		p.letGo()
		if err := p.adding.letGo(); err != nil {
			p.log.Warn("cannot let go of addresses", "err", err)
		}
	}
	p.relinquish(ctx)
	return failed, nil
}

func (d *direct) listen(ctx context.Context, p place) error {
	if d.role != sdk.Active {
		return d.probe(ctx, p)
	}
	if err := d.adding.unable[p.addr.Addr()]; err != nil {
		return err
	}
	if d.open[p] != nil || d.resume(p) {
		return nil
	}
	s, err := d.relay.Listen(ctx, p.protocol, p.addr)
	if err == nil {
		d.open[p] = s
	}
	return err
}

// probe finds out whether p could be opened, once an address is added that has to be.
func (d *direct) probe(ctx context.Context, p place) error {
	err := probe(ctx, p)
	if err != nil && notOurs(err) && d.borne(p.addr.Addr()) {
		return d.adding.holding.Possible(p.addr.Addr(), d.adding.on)
	}
	return err
}

// Probe looks whether node ports are taken at other addresses, whether a place is free by now,
// and whether another program removed an address.
func (d *direct) Probe(ctx context.Context) (found frame.Finding) {
	if !d.due() {
		return found
	}
	found.Moved = d.moved(func(now *machine) bool { return !slices.Equal(now.nodePorts, d.machine.nodePorts) })
	found.Due = d.again()
	if found.Why = d.missing(); found.Why != "" {
		found.Lost = frame.All
	} else {
		d.relinquish(ctx)
	}
	return found
}

// Audit has nothing to do: no other process can change a socket.
func (d *direct) Audit(context.Context) frame.Finding { return frame.Finding{} }
