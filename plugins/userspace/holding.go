// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// An interfaces is the interfaces of this machine with their addresses, or a test's.
type interfaces interface {
	// Able returns why this process can add no address to the interface of that name (empty: the
	// loopback interface), where that is known without trying: errors.ErrUnsupported, since the system
	// lacks the call, fs.ErrPermission, or fs.ErrNotExist, since there is no such interface.
	Able(on string) error

	// List returns every unicast address that an interface has.
	List() ([]assigned, error)

	// Add gives an interface an address, with a range of that address alone, that the system
	// never chooses as a source. Where it is there already, the error is fs.ErrExist; where the
	// system has no such call, errors.ErrUnsupported. Nothing that is added outlives a reboot.
	Add(on string, addr netip.Addr) error

	// Remove takes an address away. Where it is not there, the error is fs.ErrNotExist.
	Remove(assigned) error
}

// An assigned is an address that an interface has.
type assigned struct {
	addr     netip.Addr
	index    uint32 // of its interface
	created  uint64 // when the system made it; two that came one after the other differ. Zero: not known
	alone    bool   // its range is that address alone
	noSource bool   // the system never chooses it as a source
	state    addressState
}

// added reports whether a has the form that Add gives an address.
func (a assigned) added() bool { return a.alone && a.noSource }

// An addressState says how far the system is with an address: it first asks whether another
// machine on the link has it.
type addressState uint8

const (
	tentative addressState = iota // another machine may have it: not to be used yet
	duplicate                     // another machine has it
	usable
)

// A holding is the addresses of Services that one process has added to an interface. It removes
// what it added and nothing else.
//
// Each address is noted in a file before it is added, so that a process that is killed between the
// two leaves nothing unknown. Afterwards the note has the time at which the system made the address.
// An address is ours only where both agree: one that another program has added in its place
// has another time. It is used as it is, and never removed. Where the time is not in the note, since
// the process was killed between, an address is ours if it has the form that Add gives it.
//
// One process at a time, the one that serves, adds and removes addresses: it has the lock. What it
// leaves when it ends is noted, and belongs to the next one. A reboot removes the addresses, and the
// next process then removes their notes. One goroutine at a time uses a holding.
type holding struct {
	system interfaces
	file   string // of the notes
	lock   *os.File
	notes  map[netip.Addr]note // what the file has; nil without the lock
	has    map[netip.Addr]bool // what this process wanted, and was there when it looked last; true: it is ours
}

// A note is what the file has of one address.
type note struct {
	Interface string `json:"interface"`         // its name, for people
	Created   uint64 `json:"created,omitempty"` // as the system says of the address; zero: it may not be added yet, or the system does not say
}

// isOf reports whether a is the address that n notes.
func (n note) isOf(a assigned) bool {
	return n.Created != 0 && n.Created == a.created || n.Created == 0 && a.added()
}

// newHolding returns one with notes in dir, that holds nothing yet. It makes nothing.
func newHolding(system interfaces, dir string) *holding {
	return &holding{system: system, file: filepath.Join(dir, "addresses.json"), has: make(map[netip.Addr]bool)}
}

const (
	lockLimit   = 2 * time.Second // the process that served lets go of the lock when this one is to serve
	usableLimit = 5 * time.Second // Windows asks three times, a second apart, whether another machine has an address
	pollEvery   = 20 * time.Millisecond
)

// ensure has the interface called on (empty: the loopback interface) have these addresses, and
// waits, a few seconds at most, until they can be used. An address that is there already stays
// as it is, on whichever interface. It calls step as it gets on. Addresses that cannot be had
// are in failed, each with what to do; any error says that the rest was not tried to its end.
func (h *holding) ensure(ctx context.Context, on string, addrs []netip.Addr, step func()) (failed map[netip.Addr]error, err error) {
	failed = make(map[netip.Addr]error)
	addrs = slices.DeleteFunc(slices.Clone(addrs), h.holds)
	if len(addrs) == 0 {
		return failed, nil
	}
	if err := h.begin(ctx, lockLimit); err != nil {
		return failed, err
	}
	able := h.system.Able(on)
	there, err := h.observe()
	if err != nil {
		return failed, err
	}
	var missing []netip.Addr
	for _, addr := range addrs {
		a, has := there[addr]
		n, noted := h.notes[addr]
		switch {
		case !has && able != nil:
			failed[addr] = cannotAdd(addr, on, able)
		case !has:
			h.notes[addr] = note{Interface: cmp.Or(on, "loopback")}
			missing = append(missing, addr)
		case noted && n.isOf(a):
			h.notes[addr], h.has[addr] = note{n.Interface, a.created}, true
		default:
			delete(h.notes, addr)
			h.has[addr] = false
		}
	}
	if err := h.save(); err != nil {
		return failed, err
	}
	for _, addr := range missing {
		step()
		if ctx.Err() != nil {
			return failed, ctx.Err() // it is noted that the rest may be there
		}
		err := h.system.Add(on, addr)
		switch {
		case err == nil:
			h.has[addr] = true
		case errors.Is(err, fs.ErrExist): // another program has just added it
			delete(h.notes, addr)
			h.has[addr] = false
		default:
			delete(h.notes, addr)
			failed[addr] = cannotAdd(addr, on, err)
		}
	}
	return failed, errors.Join(h.await(ctx, addrs, failed, step), h.save())
}

// await waits until these addresses can be used, and notes when the system made ours. Addresses
// that cannot be used are in failed, and are removed if they are ours.
func (h *holding) await(ctx context.Context, addrs []netip.Addr, failed map[netip.Addr]error, step func()) error {
	for deadline := time.Now().Add(usableLimit); ; step() {
		there, err := h.observe()
		if err != nil {
			return err
		}
		late := time.Now().After(deadline)
		addrs = slices.DeleteFunc(addrs, func(addr netip.Addr) bool {
			a, has := there[addr]
			if n, noted := h.notes[addr]; noted && has {
				h.notes[addr] = note{n.Interface, a.created}
			}
			switch {
			case failed[addr] != nil || has && a.state == usable:
				return true
			case has && a.state == tentative && !late:
				return false
			}
			failed[addr] = cannotUse(addr, a, has)
			err = errors.Join(err, h.remove(addr, there))
			return true
		})
		if len(addrs) == 0 || err != nil {
			return err
		}
		if err := wait(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// wait waits, and returns the error of ctx if that ends meanwhile.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// begin takes the lock, which another process may have for so long, and reads the notes, unless this process has done so.
func (h *holding) begin(ctx context.Context, limit time.Duration) error {
	if h.lock != nil {
		return nil
	}
	if err := statefile.MakeDir(filepath.Dir(h.file)); err != nil {
		return fmt.Errorf("note addresses: %w", err)
	}
	for deadline := time.Now().Add(limit); ; {
		lock, err := statefile.TryLock(h.file + ".lock")
		if err == nil {
			h.lock, h.notes = lock, h.read()
			return nil
		}
		if !errors.Is(err, statefile.ErrLocked) || time.Now().After(deadline) {
			return fmt.Errorf("add and remove addresses, which another process does: %w", err)
		}
		if err := wait(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// letGo has the next process add and remove addresses. All stay as they are.
func (h *holding) letGo() error {
	clear(h.has)
	lock := h.lock
	h.lock, h.notes = nil, nil
	if lock == nil {
		return nil
	}
	return lock.Close()
}

// read returns what the file has. A file that is missing or broken has nothing: then no address
// is known to be ours.
func (h *holding) read() map[netip.Addr]note {
	notes := make(map[netip.Addr]note)
	if data, err := statefile.Read(h.file); err != nil || json.Unmarshal(data, &notes) != nil {
		clear(notes)
	}
	return notes
}

// save replaces the file as a whole. Without notes there is none.
func (h *holding) save() error {
	if len(h.notes) == 0 {
		return statefile.Remove(h.file)
	}
	data, err := json.MarshalIndent(h.notes, "", "\t")
	if err == nil {
		err = statefile.Write(h.file, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("note addresses: %w", err)
	}
	return nil
}

// observe returns what the system has. It is one call, whatever has changed.
func (h *holding) observe() (map[netip.Addr]assigned, error) {
	list, err := h.system.List()
	if err != nil {
		return nil, err
	}
	there := make(map[netip.Addr]assigned, len(list))
	for _, a := range list {
		there[a.addr] = a
	}
	return there, nil
}

// release removes all addresses that are ours, but those that keep is true for: also those that
// processes before this one added. It names them.
func (h *holding) release(ctx context.Context, keep func(netip.Addr) bool) (gone []string, err error) {
	maps.DeleteFunc(h.has, func(addr netip.Addr, ours bool) bool { return !ours && !keep(addr) })
	if h.lock == nil {
		if _, err := os.Stat(h.file); err != nil {
			return nil, nil // nothing was ever noted
		}
		if err := h.begin(ctx, lockLimit); err != nil {
			return nil, err
		}
	}
	return h.removeAll(keep, false)
}

// sweep removes, or with dry only names, every address that is noted, unless another process
// serves: it needs them.
func (h *holding) sweep(ctx context.Context, dry bool) ([]string, error) {
	if _, err := os.Stat(h.file); err != nil {
		return nil, nil
	}
	if h.lock == nil {
		if err := h.begin(ctx, 0); errors.Is(err, statefile.ErrLocked) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		defer func() { _ = h.letGo() }()
	}
	return h.removeAll(func(netip.Addr) bool { return false }, dry)
}

// removeAll removes the addresses that are ours but those to keep, and their notes, and names them; with dry it only
// names them.
func (h *holding) removeAll(keep func(netip.Addr) bool, dry bool) (gone []string, err error) {
	addrs := slices.DeleteFunc(slices.SortedFunc(maps.Keys(h.notes), netip.Addr.Compare), keep)
	if len(addrs) == 0 {
		return nil, nil
	}
	there, err := h.observe()
	if err != nil {
		return nil, err
	}
	for _, addr := range addrs {
		n := h.notes[addr]
		if a, has := there[addr]; has && n.isOf(a) {
			gone = append(gone, fmt.Sprintf("address %s on %q", addr, n.Interface))
		}
		if !dry {
			err = errors.Join(err, h.remove(addr, there))
		}
	}
	if dry {
		return gone, nil
	}
	return gone, errors.Join(err, h.save())
}

// remove removes addr, if it is there and ours, and then its note, which the caller saves.
func (h *holding) remove(addr netip.Addr, there map[netip.Addr]assigned) error {
	n, noted := h.notes[addr]
	if a, has := there[addr]; has && noted && n.isOf(a) {
		if err := h.system.Remove(a); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the address %s cannot be removed from the interface %q: %w; try: Remove-NetIPAddress -IPAddress %s", addr, n.Interface, err, addr)
		}
	}
	delete(h.notes, addr)
	delete(h.has, addr)
	return nil
}

// holds reports whether this process has made sure of addr.
func (h *holding) holds(addr netip.Addr) bool {
	_, has := h.has[addr]
	return has
}

// ours returns a function that reports whether an address is noted, by this process or another: no
// other program added it.
func (h *holding) ours() func(netip.Addr) bool {
	notes := h.notes
	if notes == nil {
		notes = h.read()
	}
	return func(addr netip.Addr) bool { _, noted := notes[addr]; return noted }
}

// lost returns the addresses of a family that this process had made sure of and that the system
// does not have any more, or that another machine has too. ensure has to be asked for them again.
func (h *holding) lost(family func(netip.Addr) bool) ([]netip.Addr, error) {
	if len(h.has) == 0 {
		return nil, nil
	}
	there, err := h.observe()
	if err != nil {
		return nil, err
	}
	var lost []netip.Addr
	for addr := range h.has {
		if a, has := there[addr]; family(addr) && (!has || a.state == duplicate) {
			lost = append(lost, addr)
			delete(h.has, addr)
		}
	}
	slices.SortFunc(lost, netip.Addr.Compare)
	return lost, nil
}

// possible returns why no address could be added to the interface called on, if that is known
// without trying.
func (h *holding) possible(addr netip.Addr, on string) error {
	if err := h.system.Able(on); err != nil {
		return cannotAdd(addr, on, err)
	}
	return nil
}

// cannotAdd says why addr is not added to the interface called on, and what to do. What no retry
// can mend is a Refusal.
func cannotAdd(addr netip.Addr, on string, err error) error {
	where := "the loopback interface"
	if on != "" {
		where = fmt.Sprintf("the interface %q", on)
	}
	why := fmt.Sprintf("the address %s cannot be added to %s: %v", addr, where, err)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return &sdk.Refusal{Field: "frontends", Why: why, Try: "add it by other means, and set the option addresses to never"}
	case errors.Is(err, fs.ErrPermission):
		return &sdk.Refusal{Field: "frontends", Why: why, Try: "run the host as an administrator, or as a service"}
	case errors.Is(err, fs.ErrNotExist):
		return errors.New(why + "; try: Get-NetIPInterface, for the names of interfaces, and set the option interface")
	}
	return errors.New(why + "; try: Get-NetIPAddress, for what has it; it is tried again")
}

// cannotUse says why an address that is there, or was, cannot be used.
func cannotUse(addr netip.Addr, a assigned, has bool) error {
	switch {
	case has && a.state == duplicate:
		return fmt.Errorf("another machine on the link has the address %s already; try: give the Service another address, or set the option interface to one that the other machine is not behind", addr)
	case has:
		return fmt.Errorf("the address %s cannot be used after %s: the system still asks whether another machine has it; try: Get-NetIPAddress -IPAddress %s, for its state; it is tried again", addr, usableLimit, addr)
	}
	return fmt.Errorf("the address %s was removed as soon as it was there; try: find out which program does that; it is tried again", addr)
}
