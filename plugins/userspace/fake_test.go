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

// A fakeInterfaces implements interfaces in memory. The zero value has only the interface lo. Its methods may be called
// concurrently.
type fakeInterfaces struct {
	mu      sync.Mutex // guards the fields below
	has     map[netip.Addr]assigned
	clock   uint64              // time of the last creation
	missing bool                // lo does not exist
	denied  error               // the result of Add
	taken   map[netip.Addr]bool // other machines have these addresses
	slow    int                 // number of List calls before an added address can be used
	listed  map[netip.Addr]int  // number of List calls with an address
}

// set calls change with the mutex held.
func (f *fakeInterfaces) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

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

func (f *fakeInterfaces) List() ([]assigned, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for addr, a := range f.has {
		if f.listed[addr]++; a.state == tentative && f.listed[addr] > f.slow {
			a.state = usable
			if f.taken[addr] {
				a.state = duplicate
			}
			f.has[addr] = a
		}
	}
	return slices.Collect(maps.Values(f.has)), nil
}

func (f *fakeInterfaces) Add(_ string, addr netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.denied != nil {
		return f.denied
	}
	return f.create(assigned{addr: addr, index: 1, alone: true, noSource: true})
}

// AddOther adds an address as another program does.
func (f *fakeInterfaces) AddOther(addr netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.create(assigned{addr: addr, index: 1, alone: true})
}

func (f *fakeInterfaces) create(a assigned) error {
	if _, exists := f.has[a.addr]; exists {
		return fs.ErrExist
	}
	if f.has == nil {
		f.has, f.listed = make(map[netip.Addr]assigned), make(map[netip.Addr]int)
	}
	f.clock++
	a.created = f.clock
	f.has[a.addr], f.listed[a.addr] = a, 0
	return nil
}

func (f *fakeInterfaces) Remove(a assigned) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, exists := f.has[a.addr]; !exists {
		return fs.ErrNotExist
	}
	delete(f.has, a.addr)
	return nil
}

// removeInterface removes lo with its addresses, or adds it again.
func (f *fakeInterfaces) removeInterface(remove bool) {
	f.set(func() {
		if f.missing = remove; remove {
			clear(f.has)
		}
	})
}

// addrs returns the addresses of lo, sorted.
func (f *fakeInterfaces) addrs() []netip.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Keys(f.has), netip.Addr.Compare)
}
