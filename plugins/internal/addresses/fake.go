// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"errors"
	"io/fs"
	"maps"
	"net/netip"
	"slices"
	"sync"
)

// A Fake is a System of a test's, in memory. The zero value has an interface called lo alone.
// Its methods may be called concurrently.
type Fake struct {
	mu         sync.Mutex // guards what follows
	has        map[netip.Addr]Address
	clock      uint64
	missing    bool                // lo is gone
	denied     error               // what Add says
	duplicates map[netip.Addr]bool // other machines have these
	tentative  int                 // how often an address that was added is listed before it can be used
	asked      map[netip.Addr]int
}

// Able returns what Deny has set, if it holds for every address.
func (f *Fake) Able() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(f.denied, errors.ErrUnsupported) || errors.Is(f.denied, fs.ErrPermission) {
		return f.denied
	}
	return nil
}

// Interface knows lo.
func (f *Fake) Interface(name string) (Interface, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.missing || name != "" && name != "lo" {
		return Interface{}, fs.ErrNotExist
	}
	return Interface{"lo", 1}, nil
}

// List returns them in order.
func (f *Fake) List() ([]Address, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for addr, a := range f.has {
		if a.State != Tentative {
			continue
		}
		if f.asked[addr]++; f.asked[addr] > f.tentative {
			a.State = Usable
			if f.duplicates[addr] {
				a.State = Duplicate
			}
			f.has[addr] = a
		}
	}
	return slices.SortedFunc(maps.Values(f.has), func(a, b Address) int { return a.Addr.Compare(b.Addr) }), nil
}

// Add adds an address to lo.
func (f *Fake) Add(on Interface, addr netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.denied != nil {
		return f.denied
	}
	return f.put(Address{Addr: addr, Index: on.Index, Alone: true, NoSource: true})
}

func (f *Fake) put(a Address) error {
	if _, there := f.has[a.Addr]; there {
		return fs.ErrExist
	}
	if f.has == nil {
		f.has, f.asked = make(map[netip.Addr]Address), make(map[netip.Addr]int)
	}
	f.clock++
	a.Created = f.clock
	f.has[a.Addr] = a
	delete(f.asked, a.Addr)
	return nil
}

// Remove removes an address.
func (f *Fake) Remove(a Address) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, there := f.has[a.Addr]; !there {
		return fs.ErrNotExist
	}
	delete(f.has, a.Addr)
	return nil
}

// Foreign has another program add an address, as netsh does.
func (f *Fake) Foreign(addr netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.put(Address{Addr: addr, Index: 1, Alone: true})
}

// Gone has lo be gone, with its addresses, or be there again.
func (f *Fake) Gone(gone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missing = gone
	if gone {
		clear(f.has)
	}
}

// Deny has Add return an error; nil: none.
func (f *Fake) Deny(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.denied = err
}

// Elsewhere has another machine on the link have an address.
func (f *Fake) Elsewhere(addr netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.duplicates == nil {
		f.duplicates = make(map[netip.Addr]bool)
	}
	f.duplicates[addr] = true
}

// Slow has an address be listed so often before it can be used.
func (f *Fake) Slow(lists int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tentative = lists
}

// Has returns the addresses, and which of them have the form that Add gives.
func (f *Fake) Has() map[netip.Addr]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[netip.Addr]bool)
	for addr, a := range f.has {
		all[addr] = a.added()
	}
	return all
}
