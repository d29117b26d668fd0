// SPDX-License-Identifier: Apache-2.0

/*
Package addresses gives the addresses of Services to an interface of the machine, for a
dataplane that can only listen where an interface has the address, and takes away what it gave
and nothing else.

	wanted, noted, observed ──▶ decide ──▶ note on disk ──▶ System.Add ──▶ note when it was made

A note is on disk before its address is added, so that a process that is killed between the two
leaves nothing unknown. Afterwards the note has the time at which the system made the address.
An address is ours only where both agree: what another program has added in its place since has
another time, is used as it is, and is never removed. Where the time is not in the note, since
the process was killed between, an address is ours if it has the form that Add gives it.

Several processes share the notes, such as two during a swap to another binary. Each note names
its holders; an address is removed when no holder lives that wants it. A process lives for as
long as it has its lock, which the system frees with it. Without a reboot in between nothing
that was noted is lost; with one, the system has forgotten the addresses, and their notes are
dropped. So notes need not last through a power failure, and no write waits for the disk.
*/
package addresses

import (
	"fmt"
	"net/netip"
)

// A System has interfaces with addresses: that of this machine ([Here]), or a test's ([Fake]).
type System interface {
	// Able returns why this process can add no address at all, where that is known without trying:
	// errors.ErrUnsupported, since the system lacks the call, or fs.ErrPermission.
	Able() error

	// Interface finds the interface of that name; empty: the loopback interface. Where there is
	// none, the error is fs.ErrNotExist.
	Interface(name string) (Interface, error)

	// List returns every unicast address that an interface has.
	List() ([]Address, error)

	// Add gives an interface an address, with a range of that address alone, that the system
	// never chooses as a source. Where it is there already, the error is fs.ErrExist; where the
	// system has no such call, errors.ErrUnsupported. Nothing that is added outlives a reboot.
	Add(Interface, netip.Addr) error

	// Remove takes an address away. Where it is not there, the error is fs.ErrNotExist.
	Remove(Address) error
}

// An Interface is one of the machine's.
type Interface struct {
	Name  string
	Index uint32
}

// An Address is one that an interface has.
type Address struct {
	Addr     netip.Addr
	Index    uint32 // of its interface
	Created  uint64 // when the system made it; two that came one after the other differ. Zero: not known
	Alone    bool   // its range is that address alone
	NoSource bool   // the system never chooses it as a source
	State    State
}

// added reports whether a has the form that Add gives an address.
func (a Address) added() bool { return a.Alone && a.NoSource }

// A State says how far the system is with an address: it first asks whether another machine on
// the link has it.
type State uint8

// The states.
const (
	Tentative State = iota // another machine may have it: not to be used yet
	Duplicate              // another machine has it
	Usable
)

// what names an address for people, on the interface that its note names.
func what(addr netip.Addr, on string) string { return fmt.Sprintf("address %s on %q", addr, on) }
