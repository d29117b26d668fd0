// SPDX-License-Identifier: Apache-2.0

/*
Package addresses adds the addresses of Services to an interface of the machine, for a dataplane
that can only listen where an interface has the address, and removes what it added and nothing
else.

Each address is noted in a file before it is added, so that a process that is killed between the
two leaves nothing unknown. Afterwards the note has the time at which the system made the address.
An address is ours only where both agree: an address that another program has added in its place
has another time. It is used as it is, and never removed. Where the time is not in the note, since
the process was killed between, an address is ours if it has the form that Add gives it.

One process at a time, the one that serves, adds and removes addresses: it has the lock. What it
leaves when it ends is noted, and belongs to the next one. A reboot removes the addresses, and the
next process then removes their notes.
*/
package addresses

import "net/netip"

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
