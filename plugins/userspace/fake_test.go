// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"io/fs"
	"maps"
	"net/netip"
	"slices"
	"sync"
)

// A fakeInterfaces is interfaces in memory. The zero value has an interface called lo alone.
// Its methods may be called concurrently.
type fakeInterfaces struct {
	mu         sync.Mutex // guards what follows
	has        map[netip.Addr]assigned
	clock      uint64
	missing    bool                // lo is gone
	denied     error               // what Add says
	duplicates map[netip.Addr]bool // other machines have these
	slow       int                 // how often an address that was added is listed before it can be used
	asked      map[netip.Addr]int
}

// Able returns what Deny has set, if it holds for every address. It knows lo.
func (f *fakeInterfaces) Able(on string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(f.denied, errors.ErrUnsupported) || errors.Is(f.denied, fs.ErrPermission) {
		return f.denied
	}
	if f.missing || on != "" && on != "lo" {
		return fs.ErrNotExist
	}
	return nil
}

// List returns them in order.
func (f *fakeInterfaces) List() ([]assigned, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for addr, a := range f.has {
		if a.state != tentative {
			continue
		}
		if f.asked[addr]++; f.asked[addr] > f.slow {
			a.state = usable
			if f.duplicates[addr] {
				a.state = duplicate
			}
			f.has[addr] = a
		}
	}
	return slices.SortedFunc(maps.Values(f.has), func(a, b assigned) int { return a.addr.Compare(b.addr) }), nil
}

// Add adds an address to lo.
func (f *fakeInterfaces) Add(_ string, addr netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.denied != nil {
		return f.denied
	}
	return f.put(assigned{addr: addr, index: 1, alone: true, noSource: true})
}

func (f *fakeInterfaces) put(a assigned) error {
	if _, there := f.has[a.addr]; there {
		return fs.ErrExist
	}
	if f.has == nil {
		f.has, f.asked = make(map[netip.Addr]assigned), make(map[netip.Addr]int)
	}
	f.clock++
	a.created = f.clock
	f.has[a.addr] = a
	delete(f.asked, a.addr)
	return nil
}

// Remove removes an address.
func (f *fakeInterfaces) Remove(a assigned) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, there := f.has[a.addr]; !there {
		return fs.ErrNotExist
	}
	delete(f.has, a.addr)
	return nil
}

// Foreign has another program add an address, as netsh does.
func (f *fakeInterfaces) Foreign(addr netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.put(assigned{addr: addr, index: 1, alone: true})
}

// Gone has lo be gone, with its addresses, or be there again.
func (f *fakeInterfaces) Gone(gone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missing = gone
	if gone {
		clear(f.has)
	}
}

// Deny has Add return an error; nil: none.
func (f *fakeInterfaces) Deny(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.denied = err
}

// Elsewhere has another machine on the link have an address.
func (f *fakeInterfaces) Elsewhere(addr netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.duplicates == nil {
		f.duplicates = make(map[netip.Addr]bool)
	}
	f.duplicates[addr] = true
}

// Slow has an address be listed so often before it can be used.
func (f *fakeInterfaces) Slow(lists int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slow = lists
}

// Has returns the addresses, and which of them have the form that Add gives.
func (f *fakeInterfaces) Has() map[netip.Addr]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[netip.Addr]bool)
	for addr, a := range f.has {
		all[addr] = a.added()
	}
	return all
}
