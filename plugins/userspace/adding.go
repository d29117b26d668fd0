// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/plugins/internal/addresses"
	"github.com/pointsman/pointsman/sdk"
)

// An adding gives an interface the addresses of frontends, where the options say so: before a
// socket is opened there, until none stands there any more. Both IP families share it.
type adding struct {
	holding *addresses.Holding // nil: on this system none is added
	enabled bool
	on      string               // the interface; empty: the loopback interface
	unable  map[netip.Addr]error // why the interface does not have them

	mu   sync.Mutex // guards said, which Report reads beside calls
	said map[sdk.Family][]string
}

func newAdding(system addresses.System, dir string) *adding {
	a := &adding{unable: make(map[netip.Addr]error), said: make(map[sdk.Family][]string)}
	if system != nil {
		a.holding = addresses.Open(system, filepath.Join(dir, "addresses"))
	}
	return a
}

// configure takes what the options say.
func (a *adding) configure(o options) error {
	if o.Addresses == "auto" && a.holding == nil {
		return &sdk.Refusal{
			Field: "options.addresses",
			Why:   "addresses can be added to an interface on Windows alone, and this is " + runtime.GOOS,
			Try:   "addresses: never, and redirect: auto as root, which needs no addresses; or add them yourself, as by ip address add 10.96.0.10/32 dev lo",
		}
	}
	a.enabled, a.on = o.Addresses == "auto", o.Interface
	return nil
}

// marked are the addresses of the machine, of which ours take no node ports.
func (a *adding) marked(own func() ([]address, error)) func() ([]address, error) {
	if a.holding == nil {
		return own
	}
	return func() ([]address, error) {
		all, err := own()
		ours := a.holding.Ours()
		for i := range all {
			all[i].foreign = all[i].foreign || ours(all[i].prefix.Addr())
		}
		return all, err
	}
}

// ensure has the interface have these addresses. Why one cannot be had is in unable.
func (a *adding) ensure(ctx context.Context, all []netip.Addr, step func()) error {
	for _, addr := range all {
		delete(a.unable, addr)
	}
	failed, err := a.holding.Ensure(ctx, a.on, all, step)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		for _, addr := range all {
			if !a.holding.Has(addr) {
				a.unable[addr] = err
			}
		}
	}
	maps.Copy(a.unable, failed)
	return nil
}

// letGo has the next process add and remove addresses. All stay as they are.
func (a *adding) letGo() error {
	if a.holding == nil {
		return nil
	}
	return a.holding.LetGo()
}

// sweep removes, or only names, every address that is noted, unless another process serves.
func (a *adding) sweep(dry bool) ([]string, error) {
	if a.holding == nil {
		return nil, nil
	}
	return a.holding.Sweep(dry)
}

// mostNotes is how many Services of a family are named that lost an address.
const mostNotes = 5

// say has notes report what is wrong in a family.
func (a *adding) say(f sdk.Family, all []string) {
	if n := len(all) - mostNotes; n > 0 {
		all = append(all[:mostNotes:mostNotes], fmt.Sprintf("%d more frontends of %s are not served, since no interface has their addresses", n, f))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.said[f] = all
}

// notes are what is wrong with addresses since the last update. It waits for nothing.
func (a *adding) notes() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Concat(a.said[sdk.IPv4], a.said[sdk.IPv6])
}

// What follows is one IP family's.

// borne reports whether an interface has to have addr, so that a socket can stand there: at every
// address of a loopback range one can anyway.
func (d *direct) borne(addr netip.Addr) bool {
	within := func(a address) bool { return !a.prefix.IsSingleIP() && a.prefix.Contains(addr) }
	return d.adding.enabled && d.table.named[addr] > 0 && !(addr.IsLoopback() && slices.ContainsFunc(d.machine.addresses, within))
}

// touchedAddrs are the addresses of the places that were touched, in order.
func (d *direct) touchedAddrs() []netip.Addr {
	all := make(map[netip.Addr]bool)
	for p := range d.touched {
		all[p.addr.Addr()] = true
	}
	return slices.SortedFunc(maps.Keys(all), netip.Addr.Compare)
}

// addressSteps are what acquire and relinquish will do, for people.
func (d *direct) addressSteps() (steps []string) {
	if d.adding.holding == nil {
		return nil
	}
	ours := d.adding.holding.Ours()
	for _, addr := range d.touchedAddrs() {
		switch has := d.adding.holding.Has(addr); {
		case d.borne(addr) && !has && !d.machine.own[addr]:
			steps = append(steps, "add address "+addr.String())
		case !d.borne(addr) && has && ours(addr):
			steps = append(steps, "remove address "+addr.String())
		}
	}
	return steps
}

// acquire has the interface have the addresses of the places that were touched. It reports
// whether sockets were closed for it: those of an address that was removed meanwhile receive
// nothing any more, also when it is there again.
func (d *direct) acquire(ctx context.Context) (closed bool, err error) {
	if d.adding.holding == nil || d.role != sdk.Active {
		return false, nil
	}
	addrs := slices.DeleteFunc(d.touchedAddrs(), func(addr netip.Addr) bool { return !d.borne(addr) || d.adding.holding.Has(addr) })
	if err := d.adding.ensure(ctx, addrs, d.step); err != nil {
		return false, err
	}
	if len(d.lost) == 0 {
		return false, nil // what follows looks at every socket
	}
	for p, socket := range d.open {
		if d.lost[p.addr.Addr()] {
			delete(d.open, p)
			socket.Close()
			closed = true
		}
	}
	clear(d.lost)
	return closed, nil
}

// unwanted notes which addresses of the places that were touched no Service names now.
func (d *direct) unwanted() {
	if d.adding.holding == nil {
		return
	}
	for _, addr := range d.touchedAddrs() {
		if d.borne(addr) {
			delete(d.unneeded, addr)
			continue
		}
		delete(d.adding.unable, addr)
		if d.adding.holding.Has(addr) {
			d.unneeded[addr] = true
		}
	}
}

// relinquish lets go of addresses at which nothing stands any more and, once after all was
// adopted, of those that a process before this one left. What cannot be removed is tried again.
func (d *direct) relinquish(ctx context.Context) {
	if d.adding.holding == nil || d.role != sdk.Active {
		return
	}
	if err := d.adding.holding.Release(d.free()); err != nil {
		d.log.Warn("an address of a Service that is gone stays; trying again", "err", err)
	}
	maps.DeleteFunc(d.unneeded, func(addr netip.Addr, _ bool) bool { return !d.adding.holding.Has(addr) })
	if d.strays {
		d.removeStrays(ctx)
	}
	d.adding.say(d.family, d.unaddressed())
}

// free are the addresses that no Service names and where no socket finishes what it has begun.
func (d *direct) free() (all []netip.Addr) {
	if len(d.unneeded) == 0 {
		return nil
	}
	finishing := make(map[netip.Addr]bool)
	for p := range d.retired {
		finishing[p.addr.Addr()] = true
	}
	for addr := range d.unneeded {
		if !finishing[addr] {
			all = append(all, addr)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

func (d *direct) removeStrays(ctx context.Context) {
	gone, err := d.adding.holding.Strays(ctx, d.has)
	if len(gone) > 0 {
		d.log.Info("removed addresses that a process before this one added", "addresses", gone)
	}
	d.strays = err != nil
	if err != nil && ctx.Err() == nil {
		d.log.Warn("addresses that a process before this one added stay; trying again", "err", err)
	}
}

// has reports whether addr is of d's family.
func (d *direct) has(addr netip.Addr) bool { return sdk.FamilyOf(addr) == d.family }

// missing looks whether an address was removed that sockets stand at.
func (d *direct) missing() (why string) {
	if d.adding.holding == nil {
		return ""
	}
	lost, err := d.adding.holding.Lost(d.has)
	if err != nil {
		d.log.Warn("cannot see whether an address was removed", "err", err)
	}
	for _, addr := range lost {
		d.lost[addr] = true
	}
	if len(lost) == 0 {
		return ""
	}
	return "the address " + lost[0].String() + " was removed"
}

// unaddressed are the Services that an update brought before and that are not served at an
// address now, since the interface cannot have it, a sentence each.
func (d *direct) unaddressed() (all []string) {
	for p, err := range d.owed {
		if d.adding.unable[p.addr.Addr()] == nil {
			continue
		}
		if c, owned := d.table.owner(p); owned {
			all = append(all, c.name.String()+" is not served at "+p.addr.String()+": "+err.Error())
		}
	}
	slices.Sort(all)
	return all
}
