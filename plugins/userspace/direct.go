// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A direct serves one IP family by sockets at the frontends' own addresses. It has sockets only in the role Active.
type direct struct{ sockets }

func newDirect(p *process, f sdk.Family) *direct {
	d := &direct{newSockets(p, f)}
	d.listen = d.listenAt
	d.reset()
	return d
}

// Masquerade returns nil: there are no rules.
func (d *direct) Masquerade() *masquerade.Hold { return nil }

// Hold releases all sockets if this process may not serve any more. It closes UDP sockets with their flows: a successor
// shares their ports, and the kernel would send it half of the datagrams. All are opened again when this process may
// serve again.
func (d *direct) Hold(lock *ledger.Lock) {
	if d.writes = lock != nil; d.writes {
		return
	}
	d.finish()
	for p, socket := range d.open {
		if p.protocol == sdk.UDP {
			delete(d.open, p)
			socket.Close()
		}
	}
	d.release()
	d.compareAll()
}

// release drains all sockets, and lets another process add and remove VIPs. Connections and flows continue.
func (d *direct) release() {
	for p, socket := range d.open {
		delete(d.open, p)
		if socket.Drain() {
			d.leaving[p] = socket
		}
	}
	clear(d.rivals)
	clear(d.failed)
	if err := d.vips.unlock(); err != nil {
		d.log.Warn("cannot release the lock for adding addresses", "err", err)
	}
}

// Adopt makes the next plan compare all sockets. It returns the role for which they were opened, because another process
// leaves nothing.
func (d *direct) Adopt(ctx context.Context, _ frame.Parts) (sdk.Role, error) {
	d.compareAll()
	return max(d.role, sdk.Standby), ctx.Err()
}

// Ours reports whether this process listens.
func (d *direct) Ours() bool { return len(d.open) > 0 }

// Node sets the node, and reads the machine's addresses.
func (d *direct) Node(n sdk.Node) error { return d.setNode(n) }

// Role sets the role for which the next plan opens or drains sockets.
func (d *direct) Role(r sdk.Role) error {
	if r != d.role {
		d.role = r
		d.compareAll()
	}
	return nil
}

// Want returns the piece of a Service. A node port has a claim at each address that takes node ports.
func (d *direct) Want(svc sdk.Service) (*desired, error) { return d.want(svc, d.machine.nodePorts) }

// Plan returns the sockets to open and close, and the VIPs to add and remove.
func (d *direct) Plan() frame.Plan { return directPlan{d.claims.Plan(), d} }

type directPlan struct {
	reconcile.Plan[*desired, claimKey, *claim]
	d *direct
}

// Apply adds VIPs, opens sockets, closes others, and removes VIPs. In a role without sockets it only finds out whether
// they could be opened.
func (p directPlan) Apply(ctx context.Context) ([]sdk.Failure, error) {
	d := p.d
	failed, err := d.apply(ctx, p.Plan)
	if err != nil {
		return nil, err
	}
	d.finish()
	if d.role != sdk.Active {
		d.release()
	}
	d.releaseVIPs()
	return failed, nil
}

// listenAt opens a socket. In a role without sockets it only finds out whether that is possible. A place in use is
// possible then, because this process may replace the one that listens there.
func (d *direct) listenAt(ctx context.Context, c *claim) (relay.Socket, error) {
	addr := c.place.addr.Addr()
	if d.role != sdk.Active {
		err := relay.Probe(ctx, c.place.protocol, c.place.addr)
		switch {
		case errors.Is(err, relay.ErrInUse):
			err = nil
		case isNotLocal(err) && !c.every() && d.needsVIP(addr):
			if err = d.vips.system.Able(d.vips.on); err != nil {
				err = d.vips.cannotAdd(addr, err)
			}
		}
		return nil, err
	}
	if err := d.vips.missing[addr]; err != nil {
		return nil, err
	}
	return d.relay.Listen(ctx, c.place.protocol, c.place.addr)
}

// releaseVIPs removes VIPs that no Service needs, except those with UDP flows. It tries again at the next call if that
// fails.
func (d *direct) releaseVIPs() {
	if d.vips.system == nil || d.role != sdk.Active {
		return
	}
	draining := make(map[netip.Addr]bool)
	for p := range d.leaving {
		draining[p.addr.Addr()] = true
	}
	gone, err := d.vips.release(func(addr netip.Addr) bool { return !d.Serves(sdk.FamilyOf(addr)) || draining[addr] })
	if len(gone) > 0 {
		d.log.Info("removed addresses that no Service needs", "addresses", gone)
	}
	if err != nil {
		d.log.Warn("cannot remove addresses that no Service needs; trying again", "err", err)
	}
}

// Probe looks for changed addresses of the machine, for VIPs that another program removed, and for sockets that can be
// opened by now.
func (d *direct) Probe(context.Context) (found frame.Finding) {
	if !d.isDue() {
		return found
	}
	found.Moved = d.hasMoved(func(now *machine) bool { return !slices.Equal(now.nodePorts, d.machine.nodePorts) })
	if found.Why = d.closeLost(); found.Why != "" {
		found.Lost = frame.All
	} else {
		d.releaseVIPs()
	}
	found.Due = d.retry
	return found
}

// closeLost closes the sockets at VIPs that another program removed, because they receive nothing any more even if the
// VIP is added again. The next plan does that and opens the sockets.
func (d *direct) closeLost() (why string) {
	lost, err := d.vips.lose(d.family)
	if err != nil {
		d.log.Warn("cannot check whether an address was removed", "err", err)
	}
	if len(lost) == 0 {
		return ""
	}
	for p := range d.rivals {
		if !slices.Contains(lost, p.addr.Addr()) {
			continue
		}
		delete(d.rivals, p)
		delete(d.failed, p)
		if socket := d.open[p]; socket != nil {
			delete(d.open, p)
			socket.Close()
		}
	}
	return "the address " + lost[0].String() + " was removed"
}

// mostNotes limits the notes of one family.
const mostNotes = 5

// Tell names the frontends that are not served, because their sockets could not be opened.
func (d *direct) Tell(r *sdk.Report) {
	var all []string
	for p, err := range d.failed {
		all = append(all, fmt.Sprintf("%s is not served at %s: %v", d.rivals[p].owner().name, p.addr, err))
	}
	slices.Sort(all)
	if n := len(all) - mostNotes; n > 0 {
		all = append(all[:mostNotes], fmt.Sprintf("%d more frontends of %s are not served", n, d.family))
	}
	r.Notes = append(r.Notes, all...)
}
