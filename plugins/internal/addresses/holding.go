// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk/statefile"
)

// A Holding is what one process has an interface have. One goroutine at a time uses it.
type Holding struct {
	system System
	notes  notes
	id     string              // this process among holders
	life   *os.File            // locked while this process holds anything; nil: it never did
	has    map[netip.Addr]bool // what this process wanted, and was there when it looked last; true: it is ours
}

// Open is what this process holds of system, with notes in dir: nothing yet. It makes nothing.
func Open(system System, dir string) *Holding {
	return &Holding{
		system: system, notes: notes{dir: dir, edge: func() {}},
		id: rand.Text(), has: make(map[netip.Addr]bool),
	}
}

// usable is how long Ensure waits for addresses that the system is not sure of: Windows asks
// three times, a second apart, whether another machine has one.
const (
	usableLimit = 5 * time.Second
	usablePoll  = 20 * time.Millisecond
)

// Ensure has the interface called on (empty: the loopback interface) have these addresses, and
// waits, a few seconds at most, until they can be used. An address that is there already stays
// as it is, wherever that is. step is called as it gets on. Those that cannot be had are in
// failed, each with what to do; any error says that the rest was not tried to its end.
func (h *Holding) Ensure(ctx context.Context, on string, addrs []netip.Addr, step func()) (failed map[netip.Addr]error, err error) {
	addrs = slices.DeleteFunc(slices.Clone(addrs), h.Has)
	failed = make(map[netip.Addr]error)
	if len(addrs) == 0 {
		return failed, nil
	}
	if err := h.change(ctx, func(there map[netip.Addr]Address, lives func(string) bool) error {
		return h.addAll(ctx, on, addrs, there, lives, failed, step)
	}); err != nil {
		return failed, err
	}
	slow, err := h.await(ctx, addrs, failed, step)
	if err != nil || len(slow) == 0 {
		return failed, err
	}
	return failed, h.Release(ctx, slow)
}

// change makes the folder and takes its lock, reads what the system has, and calls f.
func (h *Holding) change(ctx context.Context, f func(there map[netip.Addr]Address, lives func(string) bool) error) error {
	if err := statefile.MakeDir(h.notes.dir); err != nil {
		return fmt.Errorf("note addresses: %w", err)
	}
	unlock, err := h.notes.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	there, err := h.observe()
	if err != nil {
		return err
	}
	known := make(map[string]bool)
	return f(there, func(id string) bool {
		alive, asked := known[id]
		if !asked {
			alive = h.notes.lives(id)
			known[id] = alive
		}
		return alive
	})
}

// observe is what the system has. It is one call, whatever has changed.
func (h *Holding) observe() (map[netip.Addr]Address, error) {
	list, err := h.system.List()
	if err != nil {
		return nil, err
	}
	there := make(map[netip.Addr]Address, len(list))
	for _, a := range list {
		there[a.Addr] = a
	}
	return there, nil
}

func pointer(there map[netip.Addr]Address, addr netip.Addr) *Address {
	if a, ok := there[addr]; ok {
		return &a
	}
	return nil
}

// addAll adds what is not there, and notes when the system made it.
func (h *Holding) addAll(ctx context.Context, on string, addrs []netip.Addr, there map[netip.Addr]Address, lives func(string) bool, failed map[netip.Addr]error, step func()) error {
	if err := h.live(); err != nil {
		return err
	}
	to, missing := h.system.Interface(on)
	added := make(map[netip.Addr]note)
	for _, addr := range addrs {
		step()
		if err := ctx.Err(); err != nil {
			return err
		}
		found := h.notes.read(addr)
		now := note{Interface: to.Name, Holders: append(h.notes.wanted(found, h.id, lives), h.id)}
		switch decide(found, pointer(there, addr), true) {
		case add:
			if missing != nil {
				failed[addr] = noInterface(addr, on, missing)
				continue
			}
			if err := h.add(to, addr, now); err != nil {
				failed[addr] = err
				continue
			}
			if h.has[addr] {
				added[addr] = now
			}
		case keep:
			now.Interface, now.Created = found.Interface, there[addr].Created
			if err := h.notes.write(addr, now); err != nil {
				return err
			}
			h.has[addr] = true
		case use:
			if err := h.notes.drop(addr); err != nil {
				return err
			}
			h.has[addr] = false
		}
	}
	return h.noteTimes(added)
}

// live has others see that this process lives, from before it is named in a note.
func (h *Holding) live() error {
	if h.life != nil {
		return nil
	}
	f, err := tryLock(h.notes.holderFile(h.id))
	if err != nil {
		return fmt.Errorf("note that this process holds addresses: %w", err)
	}
	h.life = f
	return nil
}

// add notes an address, and adds it. Where another program has added it meanwhile, that is used.
func (h *Holding) add(to Interface, addr netip.Addr, now note) error {
	if err := h.notes.write(addr, now); err != nil {
		return err
	}
	h.notes.edge()
	err := h.system.Add(to, addr)
	if err == nil {
		h.has[addr] = true
		return nil
	}
	dropped := h.notes.drop(addr)
	if errors.Is(err, fs.ErrExist) {
		h.has[addr] = false
		return dropped
	}
	return errors.Join(notAdded(addr, to.Name, err), dropped)
}

// noteTimes completes the notes of what was added just now.
func (h *Holding) noteTimes(added map[netip.Addr]note) error {
	if len(added) == 0 {
		return nil
	}
	there, err := h.observe()
	if err != nil {
		return err
	}
	for addr, n := range added {
		if n.Created = there[addr].Created; n.Created == 0 {
			continue // the system does not say, or it is gone already
		}
		if err := h.notes.write(addr, n); err != nil {
			return err
		}
	}
	return nil
}

// await waits until these addresses can be used. Those that cannot are in failed, and returned.
func (h *Holding) await(ctx context.Context, addrs []netip.Addr, failed map[netip.Addr]error, step func()) (bad []netip.Addr, err error) {
	poll := time.NewTicker(usablePoll)
	defer poll.Stop()
	for deadline := time.Now().Add(usableLimit); ; step() {
		there, err := h.observe()
		if err != nil {
			return bad, err
		}
		late := time.Now().After(deadline)
		addrs = slices.DeleteFunc(addrs, func(addr netip.Addr) bool {
			a, has := there[addr]
			switch {
			case failed[addr] != nil || has && a.State == Usable:
				return true
			case has && a.State == Tentative && !late:
				return false
			}
			failed[addr] = unusable(addr, a, has)
			bad = append(bad, addr)
			return true
		})
		if len(addrs) == 0 {
			return bad, nil
		}
		select {
		case <-ctx.Done():
			return bad, ctx.Err()
		case <-poll.C:
		}
	}
}

// Has reports whether this process has made sure of addr.
func (h *Holding) Has(addr netip.Addr) bool {
	_, has := h.has[addr]
	return has
}

// Ours reports whether addr is noted, by this process or another: no other program added it.
func (h *Holding) Ours(addr netip.Addr) bool {
	if ours, has := h.has[addr]; has {
		return ours
	}
	return h.notes.has(addr)
}

// Lost returns the addresses of a family that this process had made sure of and that the system
// does not have any more, or that another machine has too. Ensure has to be asked for them again.
func (h *Holding) Lost(family func(netip.Addr) bool) ([]netip.Addr, error) {
	if len(h.has) == 0 {
		return nil, nil
	}
	there, err := h.observe()
	if err != nil {
		return nil, err
	}
	var lost []netip.Addr
	for addr := range h.has {
		if a, has := there[addr]; family(addr) && (!has || a.State == Duplicate) {
			lost = append(lost, addr)
			delete(h.has, addr)
		}
	}
	slices.SortFunc(lost, netip.Addr.Compare)
	return lost, nil
}

// Possible returns why no address could be added to the interface called on, if that is known
// without trying.
func (h *Holding) Possible(addr netip.Addr, on string) error {
	if err := h.system.Able(); err != nil {
		return notAdded(addr, on, err)
	}
	if _, err := h.system.Interface(on); err != nil {
		return noInterface(addr, on, err)
	}
	return nil
}

// Close ends what this process holds, as its end would. The addresses stay, for the next process.
func (h *Holding) Close() error {
	clear(h.has)
	life := h.life
	h.life = nil
	if life == nil {
		return nil
	}
	err := life.Close()
	_ = os.Remove(h.notes.holderFile(h.id)) // else prune does
	return err
}
