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

	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/sdk"
)

// An adding gives an interface the addresses of frontends, where the options say so: before a
// socket is opened there, until none stands there any more. Both IP families share it.
type adding struct {
	*holding // without a system none is ever added
	enabled  bool
	on       string               // the interface; empty: the loopback interface
	unable   map[netip.Addr]error // why the interface does not have them
}

func newAdding(system interfaces, dir string) *adding {
	return &adding{holding: newHolding(system, filepath.Join(dir, "addresses")), unable: make(map[netip.Addr]error)}
}

// configure takes what the options say.
func (a *adding) configure(o options) error {
	a.enabled, a.on = o.Addresses == "auto", o.Interface
	clear(a.unable)
	if a.enabled && a.system == nil {
		return &sdk.Refusal{
			Field: "options.addresses",
			Why:   "addresses can be added to an interface on Windows alone, and this is " + runtime.GOOS,
			Try:   "addresses: never, and redirect: auto as root, which needs no addresses; or add them yourself, as by ip address add 10.96.0.10/32 dev lo",
		}
	}
	return nil
}

// marked are the addresses of the machine, of which ours take no node ports.
func (a *adding) marked(own func() ([]address, error)) func() ([]address, error) {
	if a.system == nil {
		return own
	}
	return func() ([]address, error) {
		all, err := own()
		ours := a.ours()
		for i := range all {
			all[i].foreign = all[i].foreign || ours(all[i].prefix.Addr())
		}
		return all, err
	}
}

// What follows is one IP family's.

// adds reports whether an interface has to have addr, so that a socket can stand there: at every
// address of a loopback range one can anyway.
func (s *sockets) adds(addr netip.Addr) bool {
	return s.adding.enabled && !loopback(s.machine.addresses, addr)
}

// changesAddresses reports whether this process adds and removes addresses now.
func (s *sockets) changesAddresses() bool { return s.adding.system != nil && s.role == sdk.Active }

// has reports whether addr is of s's family.
func (s *sockets) has(addr netip.Addr) bool { return sdk.FamilyOf(addr) == s.family }

// placeOf is the place that names an address alone.
func placeOf(addr netip.Addr) place { return place{addr: netip.AddrPortFrom(addr, 0)} }

// unheld are the addresses that Services need and this process has not made sure of.
func (s *sockets) unheld() []netip.Addr {
	return slices.DeleteFunc(slices.Collect(maps.Keys(s.needed)), s.adding.holds)
}

// acquire has the interface have the addresses that a batch adds.
func (s *sockets) acquire(ctx context.Context, b batch) error {
	var added []netip.Addr
	for _, phase := range b.Phases {
		for _, c := range phase {
			if c.Key.what == ofAddress && c.Op == reconcile.Add {
				added = append(added, c.Key.place.addr.Addr())
			}
		}
	}
	return s.ensure(ctx, added)
}

// ensure has the interface have these addresses. Why one cannot be had is in adding.unable.
func (s *sockets) ensure(ctx context.Context, addrs []netip.Addr) error {
	if len(addrs) == 0 || !s.changesAddresses() {
		return nil
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	failed, err := s.adding.ensure(ctx, s.adding.on, addrs, s.step)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, addr := range addrs {
		delete(s.adding.unable, addr)
		if err != nil && !s.adding.holds(addr) {
			s.adding.unable[addr] = err
		}
	}
	maps.Copy(s.adding.unable, failed)
	return nil
}

// relinquish removes addresses that no Service needs and where no socket finishes what it has begun, also those that a
// process before this one added. What cannot be removed is tried again.
func (s *sockets) relinquish(ctx context.Context) {
	if !s.changesAddresses() {
		return
	}
	finishing := make(map[netip.Addr]bool)
	for p := range s.leaving {
		finishing[p.addr.Addr()] = true
	}
	gone, err := s.adding.release(ctx, func(addr netip.Addr) bool { return !s.has(addr) || s.needed[addr] || finishing[addr] })
	if len(gone) > 0 {
		s.log.Info("removed addresses that no Service needs", "addresses", gone)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("addresses that no Service needs stay; trying again", "err", err)
	}
}

// mostNotes is how many Services of a family are named that lost an address.
const mostNotes = 5

// Tell names the Services that are not served at an address, since no interface has it.
func (s *sockets) Tell(r *sdk.Report) {
	var all []string
	for p, err := range s.owed {
		if s.adding.unable[p.addr.Addr()] != nil {
			all = append(all, s.rivals[p].owner().name.String()+" is not served at "+p.addr.String()+": "+err.Error())
		}
	}
	slices.Sort(all)
	if n := len(all) - mostNotes; n > 0 {
		all = append(all[:mostNotes], fmt.Sprintf("%d more frontends of %s are not served, since no interface has their addresses", n, s.family))
	}
	r.Notes = append(r.Notes, all...)
}

// missing looks whether an address was removed that sockets stand at. These are closed: they receive nothing any more,
// also when the address is there again.
func (s *sockets) missing() (why string) {
	lost, err := s.adding.lost(s.has)
	if err != nil {
		s.log.Warn("cannot see whether an address was removed", "err", err)
	}
	if len(lost) == 0 {
		return ""
	}
	for _, addr := range lost {
		delete(s.needed, addr)
	}
	for p := range s.rivals {
		if slices.Contains(lost, p.addr.Addr()) {
			delete(s.rivals, p)
			delete(s.owed, p)
			if socket := s.open[p]; socket != nil {
				delete(s.open, p)
				socket.Close()
			}
		}
	}
	return "the address " + lost[0].String() + " was removed"
}
