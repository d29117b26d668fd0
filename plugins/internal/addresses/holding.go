// SPDX-License-Identifier: Apache-2.0

package addresses

import (
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

// A Holding is what one process has an interface have. One goroutine at a time uses it.
type Holding struct {
	system System
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
func (n note) isOf(a Address) bool {
	return n.Created != 0 && n.Created == a.Created || n.Created == 0 && a.added()
}

// Open returns a Holding of system, with notes in dir, that holds nothing yet. It makes nothing.
func Open(system System, dir string) *Holding {
	return &Holding{system: system, file: filepath.Join(dir, "addresses.json"), has: make(map[netip.Addr]bool)}
}

const (
	lockLimit   = 2 * time.Second // the process that served lets go of the lock when this one is to serve
	usableLimit = 5 * time.Second // Windows asks three times, a second apart, whether another machine has an address
	pollEvery   = 20 * time.Millisecond
)

// Ensure has the interface called on (empty: the loopback interface) have these addresses, and
// waits, a few seconds at most, until they can be used. An address that is there already stays
// as it is, on whichever interface. Ensure calls step as it gets on. Addresses that cannot be had
// are in failed, each with what to do; any error says that the rest was not tried to its end.
func (h *Holding) Ensure(ctx context.Context, on string, addrs []netip.Addr, step func()) (failed map[netip.Addr]error, err error) {
	failed = make(map[netip.Addr]error)
	addrs = slices.DeleteFunc(slices.Clone(addrs), h.Has)
	if len(addrs) == 0 {
		return failed, nil
	}
	if err := h.begin(ctx); err != nil {
		return failed, err
	}
	to, err := h.system.Interface(on)
	if err != nil {
		for _, addr := range addrs {
			failed[addr] = cannotAdd(addr, on, err)
		}
		return failed, nil
	}
	there, err := h.observe()
	if err != nil {
		return failed, err
	}
	var missing []netip.Addr
	for _, addr := range addrs {
		a, has := there[addr]
		n, noted := h.notes[addr]
		switch {
		case !has:
			h.notes[addr] = note{Interface: to.Name}
			missing = append(missing, addr)
		case noted && n.isOf(a):
			h.notes[addr], h.has[addr] = note{n.Interface, a.Created}, true
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
		err := h.system.Add(to, addr)
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
func (h *Holding) await(ctx context.Context, addrs []netip.Addr, failed map[netip.Addr]error, step func()) error {
	for deadline := time.Now().Add(usableLimit); ; step() {
		there, err := h.observe()
		if err != nil {
			return err
		}
		late := time.Now().After(deadline)
		addrs = slices.DeleteFunc(addrs, func(addr netip.Addr) bool {
			a, has := there[addr]
			if n, noted := h.notes[addr]; noted && has {
				h.notes[addr] = note{n.Interface, a.Created}
			}
			switch {
			case failed[addr] != nil || has && a.State == Usable:
				return true
			case has && a.State == Tentative && !late:
				return false
			}
			failed[addr] = cannotUse(addr, a, has)
			err = errors.Join(err, h.remove(addr, there))
			return true
		})
		if len(addrs) == 0 || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// begin takes the lock, and reads the notes, unless this process has done so.
func (h *Holding) begin(ctx context.Context) error {
	if h.lock != nil {
		return nil
	}
	if err := statefile.MakeDir(filepath.Dir(h.file)); err != nil {
		return fmt.Errorf("note addresses: %w", err)
	}
	for deadline := time.Now().Add(lockLimit); ; {
		lock, err := statefile.TryLock(h.file + ".lock")
		if err == nil {
			h.lock, h.notes = lock, h.read()
			return nil
		}
		if !errors.Is(err, statefile.ErrLocked) || time.Now().After(deadline) {
			return fmt.Errorf("add addresses, which another process does: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// LetGo has the next process add and remove addresses. All stay as they are.
func (h *Holding) LetGo() error {
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
func (h *Holding) read() map[netip.Addr]note {
	notes := make(map[netip.Addr]note)
	if data, err := statefile.Read(h.file); err != nil || json.Unmarshal(data, &notes) != nil {
		clear(notes)
	}
	return notes
}

// save replaces the file as a whole. Without notes there is none.
func (h *Holding) save() error {
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

// Release removes these addresses, as far as they are ours.
func (h *Holding) Release(addrs []netip.Addr) error {
	if len(addrs) == 0 || h.lock == nil {
		return nil
	}
	_, err := h.removeAll(addrs)
	return err
}

// Strays removes the addresses of a family that processes before this one added, and that this
// one has not made sure of, and names them.
func (h *Holding) Strays(ctx context.Context, family func(netip.Addr) bool) ([]string, error) {
	if _, err := os.Stat(h.file); err != nil {
		return nil, nil // nothing was ever noted
	}
	if err := h.begin(ctx); err != nil {
		return nil, err
	}
	return h.removeAll(slices.DeleteFunc(slices.SortedFunc(maps.Keys(h.notes), netip.Addr.Compare),
		func(addr netip.Addr) bool { return !family(addr) || h.Has(addr) }))
}

// Sweep removes, or with dry only names, every address that is noted, unless another process
// serves: it needs them.
func (h *Holding) Sweep(dry bool) ([]string, error) {
	if _, err := os.Stat(h.file); err != nil {
		return nil, nil
	}
	if h.lock == nil {
		lock, err := statefile.TryLock(h.file + ".lock")
		if errors.Is(err, statefile.ErrLocked) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("remove addresses: %w", err)
		}
		h.lock, h.notes = lock, h.read()
		defer func() { _ = h.LetGo() }()
	}
	addrs := slices.SortedFunc(maps.Keys(h.notes), netip.Addr.Compare)
	if !dry {
		return h.removeAll(addrs)
	}
	there, err := h.observe()
	if err != nil {
		return nil, err
	}
	var named []string
	for _, addr := range addrs {
		if a, has := there[addr]; has && h.notes[addr].isOf(a) {
			named = append(named, h.name(addr))
		}
	}
	return named, nil
}

// removeAll removes these addresses, as far as they are ours, and their notes, and names them.
func (h *Holding) removeAll(addrs []netip.Addr) (gone []string, err error) {
	if len(addrs) == 0 {
		return nil, nil
	}
	there, err := h.observe()
	if err != nil {
		return nil, err
	}
	for _, addr := range addrs {
		name := ""
		if a, has := there[addr]; has && h.notes[addr].isOf(a) {
			name = h.name(addr)
		}
		failed := h.remove(addr, there)
		if err = errors.Join(err, failed); failed == nil && name != "" {
			gone = append(gone, name)
		}
	}
	return gone, errors.Join(err, h.save())
}

// remove removes addr, if it is ours, and then its note, which the caller saves.
func (h *Holding) remove(addr netip.Addr, there map[netip.Addr]Address) error {
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

// name names an address that is noted, for people.
func (h *Holding) name(addr netip.Addr) string {
	return fmt.Sprintf("address %s on %q", addr, h.notes[addr].Interface)
}

// Has reports whether this process has made sure of addr.
func (h *Holding) Has(addr netip.Addr) bool {
	_, has := h.has[addr]
	return has
}

// Ours returns a function that reports whether an address is noted, by this process or another: no
// other program added it.
func (h *Holding) Ours() func(netip.Addr) bool {
	notes := h.notes
	if notes == nil {
		notes = h.read()
	}
	return func(addr netip.Addr) bool { _, noted := notes[addr]; return noted }
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
	err := h.system.Able()
	if err == nil {
		_, err = h.system.Interface(on)
	}
	if err != nil {
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
func cannotUse(addr netip.Addr, a Address, has bool) error {
	switch {
	case has && a.State == Duplicate:
		return fmt.Errorf("another machine on the link has the address %s already; try: give the Service another address, or set the option interface to one that the other machine is not behind", addr)
	case has:
		return fmt.Errorf("the address %s cannot be used after %s: the system still asks whether another machine has it; try: Get-NetIPAddress -IPAddress %s, for its state; it is tried again", addr, usableLimit, addr)
	}
	return fmt.Errorf("the address %s was removed as soon as it was there; try: find out which program does that; it is tried again", addr)
}
