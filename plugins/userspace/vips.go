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
	"runtime"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// An interfaces reads and changes the addresses of the machine's interfaces.
type interfaces interface {
	// Able returns why this process cannot add addresses to an interface (empty: the loopback interface), as far
	// as that is known without trying: errors.ErrUnsupported if the system lacks the call, fs.ErrPermission, or
	// fs.ErrNotExist if there is no such interface.
	Able(on string) error

	// List returns the unicast addresses of all interfaces.
	List() ([]assigned, error)

	// Add adds an address to an interface until the next reboot. Its prefix has no other address, and the system
	// never chooses it as a source. Add returns fs.ErrExist if an interface has the address, and
	// errors.ErrUnsupported if the system lacks the call.
	Add(on string, addr netip.Addr) error

	// Remove removes an address. It returns fs.ErrNotExist if no interface has it.
	Remove(assigned) error
}

// An assigned is an address that an interface has.
type assigned struct {
	addr     netip.Addr
	index    uint32 // of the interface
	created  uint64 // time at which the system created the address, differs for each creation; 0: unknown
	alone    bool   // its prefix has no other address
	noSource bool   // the system never chooses it as a source
	state    addressState
}

// isLikeOurs reports whether the address looks like one that Add created.
func (a assigned) isLikeOurs() bool { return a.alone && a.noSource }

// An addressState is the result of duplicate address detection.
type addressState uint8

const (
	tentative addressState = iota // detection is running, and no socket can use the address
	duplicate                     // another machine on the link has the address
	usable
)

// A vips adds addresses of Services (VIPs) to an interface if the option addresses is auto, and removes them when no
// Service needs them. Both IP families share it. Only one goroutine at a time may use it.
//
// It removes only addresses that it added. It notes each address in a file before it adds it, so that a process that
// is killed leaves no unknown address. After that it adds the time of creation to the note. An address is ours if this
// time is the same: if another program added the address again, the time differs, and the address is used but never
// removed. If the process was killed before it noted the time, an address that looks like ours is ours.
//
// Only the process that holds the lock adds and removes addresses. The addresses that it leaves belong to the next
// process. A reboot removes the addresses, and the next process then removes their notes.
type vips struct {
	system  interfaces // nil if this system adds no addresses
	file    string     // has the notes
	enabled bool
	on      string // the name of the interface; empty: the loopback interface

	lock    *os.File
	notes   map[netip.Addr]note  // the content of the file; nil without the lock
	spare   map[netip.Addr]bool  // noted addresses that no Service needs
	present map[netip.Addr]bool  // addresses that a Service needs and an interface has
	missing map[netip.Addr]error // the other addresses that a Service needs, with the reason
}

// A note describes an address in the file.
type note struct {
	Interface string `json:"interface"`         // its name, for people
	Created   uint64 `json:"created,omitempty"` // assigned.created; 0: not known yet, or the address is not added yet
}

const (
	usableLimit = 5 * time.Second // duplicate address detection on Windows sends three probes, a second apart
	pollEvery   = 20 * time.Millisecond
)

// errNotAdded is the reason in vips.missing while an address is being added.
var errNotAdded = errors.New("the address is not added yet")

// newVIPs returns a vips without addresses. It creates no file.
func newVIPs(system interfaces, dir string) *vips {
	return &vips{
		system: system, file: filepath.Join(dir, "addresses", "addresses.json"),
		spare: make(map[netip.Addr]bool), present: make(map[netip.Addr]bool), missing: make(map[netip.Addr]error),
	}
}

// configure sets the options.
func (v *vips) configure(o options) error {
	v.enabled, v.on = o.Addresses == "auto", o.Interface
	if v.enabled && v.system == nil {
		return &sdk.Refusal{
			Field: "options.addresses",
			Why:   "addresses can be added to an interface only on Windows, and this is " + runtime.GOOS,
			Try:   "addresses: never, and redirect: auto as root, which needs no addresses; or add them yourself, for example: ip address add 10.96.0.10/32 dev lo",
		}
	}
	return nil
}

// mark returns a function that calls own, and marks the noted addresses as foreign, because they take no node ports.
func (v *vips) mark(own func() ([]address, error)) func() ([]address, error) {
	if v.system == nil {
		return own
	}
	return func() ([]address, error) {
		all, err := own()
		notes := v.notes
		if notes == nil { // those of another process
			notes = v.read()
		}
		for i := range all {
			_, noted := notes[all[i].prefix.Addr()]
			all[i].foreign = all[i].foreign || noted
		}
		return all, err
	}
}

// add adds addresses that Services need, and waits up to usableLimit until they can be used. It does not change an
// address that an interface has already. v.missing tells afterwards which addresses cannot be used. It calls step
// after each part of its work.
func (v *vips) add(ctx context.Context, addrs []netip.Addr, step func()) error {
	addrs = slices.DeleteFunc(slices.Clone(addrs), func(addr netip.Addr) bool { return v.present[addr] })
	if len(addrs) == 0 {
		return nil
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, addr := range addrs {
		v.missing[addr] = errNotAdded
	}
	err := v.takeLock()
	if err == nil {
		err = errors.Join(v.create(ctx, addrs, step), v.save())
	}
	for _, addr := range addrs {
		if err != nil && v.missing[addr] == errNotAdded {
			v.missing[addr] = err
		}
	}
	return ctx.Err()
}

// create notes and adds the addresses that no interface has, and waits until all can be used.
func (v *vips) create(ctx context.Context, addrs []netip.Addr, step func()) error {
	there, err := v.list()
	if err != nil {
		return err
	}
	able := v.system.Able(v.on)
	var added []netip.Addr
	for _, addr := range addrs {
		delete(v.spare, addr)
		switch a, exists := there[addr]; {
		case exists && !v.isOurs(a):
			delete(v.notes, addr)
		case !exists && able != nil:
			v.missing[addr] = v.cannotAdd(addr, able)
		case !exists:
			v.notes[addr] = note{Interface: cmp.Or(v.on, "loopback")}
			added = append(added, addr)
		}
	}
	if err := v.save(); err != nil {
		return err
	}
	for _, addr := range added {
		step()
		if ctx.Err() != nil {
			return ctx.Err() // the notes say that the other addresses may exist
		}
		if err := v.system.Add(v.on, addr); err != nil {
			delete(v.notes, addr)
			if !errors.Is(err, fs.ErrExist) { // otherwise another program has just added it
				v.missing[addr] = v.cannotAdd(addr, err)
			}
		}
	}
	return v.await(ctx, addrs, step)
}

// await waits until addresses can be used, and notes when the system created those that are ours. It removes those of
// ours that cannot be used.
func (v *vips) await(ctx context.Context, addrs []netip.Addr, step func()) error {
	deadline := time.Now().Add(usableLimit)
	there, err := v.list()
	isTentative := func(addr netip.Addr) bool { a, exists := there[addr]; return exists && a.state == tentative }
	for err == nil && slices.ContainsFunc(addrs, isTentative) && time.Now().Before(deadline) {
		step()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
		there, err = v.list()
	}
	if err != nil {
		return err
	}
	for _, addr := range addrs {
		a, exists := there[addr]
		if n, noted := v.notes[addr]; noted && exists {
			v.notes[addr] = note{n.Interface, a.created}
		}
		switch {
		case v.missing[addr] != errNotAdded:
		case exists && a.state == usable:
			v.present[addr] = true
			delete(v.missing, addr)
		default:
			v.missing[addr] = cannotUse(addr, exists && a.state == duplicate)
			err = errors.Join(err, v.remove(addr, there))
		}
	}
	return err
}

// drop records that no Service needs an address any more. release removes the address.
func (v *vips) drop(addr netip.Addr) {
	delete(v.present, addr)
	delete(v.missing, addr)
	if _, noted := v.notes[addr]; noted {
		v.spare[addr] = true
	}
}

// release removes the addresses that no Service needs, also those of earlier processes, except those for which keep
// returns true. It returns descriptions of the removed addresses.
func (v *vips) release(keep func(netip.Addr) bool) (gone []string, err error) {
	if !v.hasNotes() {
		return nil, nil
	}
	if err := v.takeLock(); err != nil {
		return nil, err
	}
	return v.removeAll(slices.DeleteFunc(slices.Collect(maps.Keys(v.spare)), keep), false)
}

// sweep removes all noted addresses, and returns their descriptions. With dry it only returns these. It does nothing
// while another process serves, because that process needs them.
func (v *vips) sweep(dry bool) ([]string, error) {
	if !v.hasNotes() {
		return nil, nil
	}
	if v.lock == nil {
		if err := v.takeLock(); errors.Is(err, statefile.ErrLocked) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		defer func() { _ = v.unlock() }()
	}
	return v.removeAll(slices.Collect(maps.Keys(v.notes)), dry)
}

// removeAll removes those of the addresses that are ours, and all their notes.
func (v *vips) removeAll(addrs []netip.Addr, dry bool) (gone []string, err error) {
	if len(addrs) == 0 {
		return nil, nil
	}
	there, err := v.list()
	if err != nil {
		return nil, err
	}
	for _, addr := range slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare) {
		if a, exists := there[addr]; exists && v.isOurs(a) {
			gone = append(gone, fmt.Sprintf("address %s on %q", addr, v.notes[addr].Interface))
		}
		if !dry {
			err = errors.Join(err, v.remove(addr, there))
		}
	}
	if dry {
		return gone, nil
	}
	return gone, errors.Join(err, v.save())
}

// remove removes an address if it is ours, and then its note. The caller saves the notes.
func (v *vips) remove(addr netip.Addr, there map[netip.Addr]assigned) error {
	if a, exists := there[addr]; exists && v.isOurs(a) {
		if err := v.system.Remove(a); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the address %s from the interface %q: %w; try: Remove-NetIPAddress -IPAddress %s", addr, v.notes[addr].Interface, err, addr)
		}
	}
	delete(v.notes, addr)
	delete(v.spare, addr)
	delete(v.present, addr)
	return nil
}

// lose returns the addresses of a family that no interface has any more, or that another machine has, too. They have to
// be added again.
func (v *vips) lose(of sdk.Family) (lost []netip.Addr, err error) {
	if len(v.present) == 0 {
		return nil, nil
	}
	there, err := v.list()
	if err != nil {
		return nil, err
	}
	for addr := range v.present {
		if a, exists := there[addr]; sdk.FamilyOf(addr) == of && (!exists || a.state == duplicate) {
			lost = append(lost, addr)
			delete(v.present, addr)
		}
	}
	slices.SortFunc(lost, netip.Addr.Compare)
	return lost, nil
}

// isOurs reports whether this process or an earlier one added an address.
func (v *vips) isOurs(a assigned) bool {
	n, noted := v.notes[a.addr]
	return noted && (n.Created != 0 && n.Created == a.created || n.Created == 0 && a.isLikeOurs())
}

// takeLock takes the lock and reads the notes, unless this process holds it.
func (v *vips) takeLock() error {
	if v.lock != nil {
		return nil
	}
	if err := statefile.MakeDir(filepath.Dir(v.file)); err != nil {
		return fmt.Errorf("note addresses: %w", err)
	}
	lock, err := statefile.TryLock(v.file + ".lock")
	if err != nil {
		return fmt.Errorf("add and remove addresses, while another process of this mode does: %w", err)
	}
	v.lock, v.notes = lock, v.read()
	for addr := range v.notes {
		v.spare[addr] = true
	}
	return nil
}

// unlock lets the next process add and remove addresses. All addresses stay.
func (v *vips) unlock() error {
	clear(v.spare)
	clear(v.present)
	clear(v.missing)
	lock := v.lock
	v.lock, v.notes = nil, nil
	if lock == nil {
		return nil
	}
	return lock.Close()
}

// hasNotes reports whether there may be notes.
func (v *vips) hasNotes() bool {
	if v.lock != nil {
		return true
	}
	_, err := os.Stat(v.file)
	return err == nil
}

// read reads the file. If it is missing or damaged, no address is known to be ours.
func (v *vips) read() map[netip.Addr]note {
	notes := make(map[netip.Addr]note)
	if data, err := statefile.Read(v.file); err != nil || json.Unmarshal(data, &notes) != nil {
		clear(notes)
	}
	return notes
}

// save replaces the file, or removes it if there are no notes.
func (v *vips) save() error {
	if len(v.notes) == 0 {
		return statefile.Remove(v.file)
	}
	data, err := json.MarshalIndent(v.notes, "", "\t")
	if err == nil {
		err = statefile.Write(v.file, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("note addresses: %w", err)
	}
	return nil
}

// list returns the addresses of all interfaces, by a single system call.
func (v *vips) list() (map[netip.Addr]assigned, error) {
	list, err := v.system.List()
	if err != nil {
		return nil, err
	}
	there := make(map[netip.Addr]assigned, len(list))
	for _, a := range list {
		there[a.addr] = a
	}
	return there, nil
}

// cannotAdd explains why an address was not added. The error is a Refusal if it makes no sense to try again.
func (v *vips) cannotAdd(addr netip.Addr, err error) error {
	why := fmt.Sprintf("the address %s cannot be added to the interface %s: %v", addr, cmp.Or(v.on, "loopback"), err)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return &sdk.Refusal{Field: "frontends", Why: why, Try: "add it by other means, and set the option addresses to never"}
	case errors.Is(err, fs.ErrPermission):
		return &sdk.Refusal{Field: "frontends", Why: why, Try: "run the host as an administrator, or as a service"}
	}
	return errors.New(why + "; try: Get-NetIPAddress, for interfaces and their addresses, and the option interface; the plugin tries again")
}

// cannotUse explains why an address that was added, or that another program added, cannot be used.
func cannotUse(addr netip.Addr, isDuplicate bool) error {
	if isDuplicate {
		return fmt.Errorf("another machine on the link has the address %s already; try: give the Service another address, or set the option interface to one that the other machine is not behind", addr)
	}
	return fmt.Errorf("the address %s cannot be used after %s; try: Get-NetIPAddress -IPAddress %[1]s, for its state; the plugin tries again", addr, usableLimit)
}
