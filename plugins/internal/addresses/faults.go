// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
)

// A Fault says why an address cannot be had, and what to do.
type Fault struct {
	Addr netip.Addr
	Why  string
	Try  string
	Hard bool  // it will be so whenever it is tried
	Err  error // what the system said; nil: nothing
}

func (f *Fault) Error() string { return f.Why + "; try: " + f.Try }

// Unwrap is what the system said.
func (f *Fault) Unwrap() error { return f.Err }

func noInterface(addr netip.Addr, on string, err error) error {
	f := &Fault{Addr: addr, Err: err}
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		f.Why, f.Try = fmt.Sprintf("the address %s cannot be added: %v", addr, err), "it is tried again"
	case on == "":
		f.Why, f.Try = fmt.Sprintf("the address %s cannot be added: this machine has no loopback interface", addr), "the option interface, with the name of another (Get-NetIPInterface lists them)"
	default:
		f.Why, f.Try = fmt.Sprintf("the address %s cannot be added: no interface is called %q", addr, on), "Get-NetIPInterface, for their names, and set the option interface"
	}
	return f
}

func notAdded(addr netip.Addr, on string, err error) error {
	where := "the loopback interface"
	if on != "" {
		where = fmt.Sprintf("the interface %q", on)
	}
	f := &Fault{Addr: addr, Err: err, Why: fmt.Sprintf("the address %s cannot be added to %s: %v", addr, where, err)}
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		f.Hard, f.Try = true, "add it by other means, and set the option addresses to never"
	case errors.Is(err, fs.ErrPermission):
		f.Hard, f.Try = true, "run the host as an administrator, or as the service (pointsman service install)"
	default:
		f.Try = "Get-NetIPAddress, for what has it; it is tried again"
	}
	return f
}

func notRemoved(addr netip.Addr, on string, err error) error {
	return fmt.Errorf("the address %s cannot be removed from the interface %q: %w; try: Remove-NetIPAddress -IPAddress %s", addr, on, err, addr)
}

// unusable says why an address that is there, or was, cannot be used.
func unusable(addr netip.Addr, a Address, has bool) error {
	f := &Fault{Addr: addr, Why: fmt.Sprintf("the address %s was removed as soon as it was there", addr), Try: "find out which program does that; it is tried again"}
	switch {
	case has && a.State == Duplicate:
		f.Why = fmt.Sprintf("another machine on the link has the address %s already", addr)
		f.Try = "give the Service another address, or set the option interface to one that the other machine is not behind"
	case has:
		f.Why = fmt.Sprintf("the address %s cannot be used after %s: the system still asks whether another machine has it", addr, usableLimit)
		f.Try = "Get-NetIPAddress -IPAddress " + addr.String() + ", for its state; it is tried again"
	}
	return f
}
