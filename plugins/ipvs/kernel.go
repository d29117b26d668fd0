// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// What we ask of the kernel, in a few verbs. Each of those that change something is
// one request: a netlink message, or a program that is run. Doing what is done
// already is no error.

// A balancer is IPVS.
type balancer interface {
	Services() (map[serviceKey]observed, error) // all, also other programs'

	// Send takes up to atOnce steps to the kernel, and returns what it says of each. To
	// it, doing what is done already is an error.
	Send([]step) ([]error, error)

	// Loads are the destinations of one virtual service; none, and false, if there is none.
	Loads(serviceKey) (map[netip.AddrPort]load, bool, error)

	// Table are the destinations of all virtual services, but for those of marks, at once.
	Table() (table, error)

	Timeouts() (timeouts, error)
	SetTimeouts(timeouts) error // zero: as it is
	Close() error
}

// atOnce is how many steps are sent at once. If all fail, what the kernel says of them
// fits the buffer that it has for us.
const atOnce = 128

// A load is what a destination has to do.
type load struct{ weight, active, inactive int }

// timeouts are after how long a connection that says nothing is forgotten.
type timeouts struct{ TCP, TCPFin, UDP time.Duration }

// A setKeeper has the sets.
type setKeeper interface {
	Sets(context.Context) (map[sdk.Family]setsOf, error)
	Add(entry, note) error
	Remove(entry) error
	Has(entry) (bool, error)
	Count(set, sdk.Family) (int, error)              // how many entries it has
	Restore(ctx context.Context, lines string) error // many at once
	Hold(*os.File)                                   // what programs that are run keep open
}

// setsOf are the sets of one family by our names.
type setsOf struct {
	shapes  map[set]shape
	entries map[entry]note
	relics  []string // by the kernel's names: sets that only kube-proxy makes
}

// A linker has the addresses.
type linker interface {
	Addrs() (addresses, error)
	MakeDevice() error
	RemoveDevice() error
	Bind(netip.Addr) error
	Unbind(netip.Addr) error

	// Subscribe has the kernel tell which addresses come and go, until Unsubscribe, and
	// wakes a reader when it does. Changes are those since it was last called.
	Subscribe(wake chan<- struct{})
	Changes() addrChanges
	Unsubscribe()
	Close() error
}

// addresses are those of the node.
type addresses struct {
	device bool // ours is there
	ours   []netip.Addr
	others []netip.Addr // on all other devices
}

// addrChanges are how the node's addresses changed: which did, and which left our device.
type addrChanges struct {
	missed bool // and there was more
	others []change
	lost   []netip.Addr
}

// A change is an address that came, or has gone.
type change struct {
	addr netip.Addr
	gone bool
}

// A kernel is all of them.
type kernel struct {
	balancer
	setKeeper
	linker
}

// do takes one step about a virtual service. What is done already is no error.
func (k kernel) do(s step) error {
	answers, err := k.Send([]step{s})
	if err != nil {
		return err
	}
	switch err := answers[0]; {
	case errors.Is(err, syscall.EEXIST) && s.verb == addService:
		s.verb = setService
		return k.do(s)
	case errors.Is(err, syscall.EEXIST) && s.verb == addDest:
		s.verb = weighDest
		return k.do(s)
	case errors.Is(err, syscall.ESRCH) && s.verb == removeService, errors.Is(err, syscall.ENOENT) && s.verb == removeDest:
		return nil
	default:
		return err
	}
}

// of are the addresses of one family.
func (a addresses) of(f sdk.Family) addresses {
	other := func(addr netip.Addr) bool { return sdk.FamilyOf(addr) != f }
	return addresses{
		device: a.device,
		ours:   slices.DeleteFunc(slices.Clone(a.ours), other),
		others: slices.DeleteFunc(slices.Clone(a.others), other),
	}
}
