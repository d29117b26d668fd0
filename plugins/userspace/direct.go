// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A direct serves one IP family by sockets at the frontends' own addresses. It has them
// only while it is Active.
type direct struct{ sockets }

func newDirect(p *process, f sdk.Family) *direct {
	d := &direct{newSockets(p, f)}
	d.listen = d.listenAt
	d.forget()
	return d
}

// Masquerade is nil: there are no rules.
func (d *direct) Masquerade() *masquerade.Hold { return nil }

// Hold lets go of all sockets when this process is to serve no more.
func (d *direct) Hold(lock *ledger.Lock) {
	if d.writes = lock != nil; !d.writes {
		d.handover.withdraw()
		d.giveUpPorts()
	}
}

// giveUpPorts lets go of all sockets, and closes those of UDP: a successor shares their ports, and half of the datagrams
// of their flows would come to this process. All are opened again if this process is to serve again.
func (d *direct) giveUpPorts() {
	d.finish()
	for p, socket := range d.open {
		if p.protocol == sdk.UDP {
			delete(d.open, p)
			socket.Close()
		}
	}
	d.letGo()
	d.compareAll()
}

// letGo of all sockets, and of addresses. What sockets have begun goes on.
func (d *direct) letGo() {
	for p, socket := range d.open {
		delete(d.open, p)
		if socket.Drain() {
			d.leaving[p] = socket
		}
	}
	clear(d.rivals)
	clear(d.owed)
	clear(d.needed)
	if err := d.adding.letGo(); err != nil {
		d.log.Warn("cannot let go of addresses", "err", err)
	}
}

// Adopt compares anew what is open: nothing that another process did is ours. The role is
// the one that sockets were opened for.
func (d *direct) Adopt(ctx context.Context, _ frame.Parts) (sdk.Role, error) {
	d.compareAll()
	return max(d.role, sdk.Standby), ctx.Err()
}

// Ours reports whether this process listens: nothing of another one is left.
func (d *direct) Ours() bool { return len(d.open) > 0 }

// Node takes what the host says of the node, and reads its addresses.
func (d *direct) Node(n sdk.Node) error { return d.read(n) }

// Role is what the next plan opens sockets for, or lets go of them.
func (d *direct) Role(r sdk.Role) error {
	if r != d.role {
		d.role = r
		d.compareAll()
	}
	return nil
}

// Want is the places of a Service, and a node port's are at each address that takes them.
func (d *direct) Want(svc sdk.Service) (*desired, error) { return d.want(svc, d.machine.nodePorts) }

// Plan is which addresses are added and removed, and which sockets are opened and closed.
func (d *direct) Plan() frame.Plan { return directPlan{d.claims.Plan(), d} }

type directPlan struct {
	reconcile.Plan[*desired, spot, *claim]
	d *direct
}

// Apply opens sockets before it closes others, and adds addresses before the ones and removes
// them after the others. In a role without sockets it finds out whether they could be opened.
func (p directPlan) Apply(ctx context.Context) ([]sdk.Failure, error) {
	d := p.d
	failed, err := d.settle(ctx, p.Plan)
	if err != nil {
		return nil, err
	}
	d.finish()
	if d.role == sdk.Active {
		d.handover.offer()
	} else {
		d.handover.withdraw()
		d.letGo()
	}
	d.relinquish(ctx)
	return failed, nil
}

// listenAt opens a socket. In a role without sockets it finds out whether that is possible: a place that
// is in use may be the process's that this one is to succeed, and an address may be one that is added.
func (d *direct) listenAt(ctx context.Context, c *claim) (relay.Socket, error) {
	addr := c.place.addr.Addr()
	if d.role != sdk.Active {
		err := relay.Probe(ctx, c.place.protocol, c.place.addr)
		switch {
		case errors.Is(err, relay.ErrInUse):
			err = nil
		case notOurs(err) && !c.every() && d.adds(addr):
			err = d.adding.possible(addr, d.adding.on)
		}
		return nil, err
	}
	if err := d.adding.unable[addr]; err != nil {
		return nil, err
	}
	return d.relay.Listen(ctx, c.place.protocol, c.place.addr)
}

// Probe looks whether node ports are taken at other addresses, whether a place is free by now,
// and whether another program removed an address.
func (d *direct) Probe(ctx context.Context) (found frame.Finding) {
	if !d.due() {
		return found
	}
	found.Moved = d.moved(func(now *machine) bool { return !slices.Equal(now.nodePorts, d.machine.nodePorts) })
	found.Due = d.retry
	if found.Why = d.missing(); found.Why != "" {
		found.Lost = frame.All
	} else {
		d.relinquish(ctx)
	}
	return found
}

// Audit has nothing to do: no other process can change a socket.
func (d *direct) Audit(context.Context) frame.Finding { return frame.Finding{} }
