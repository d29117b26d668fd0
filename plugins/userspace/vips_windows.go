// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// theInterfaces returns the interfaces of this machine, by the IP Helper of Windows.
func theInterfaces() interfaces {
	dll := windows.NewLazySystemDLL("iphlpapi.dll")
	return ipHelper{
		initialize: dll.NewProc("InitializeUnicastIpAddressEntry"),
		create:     dll.NewProc("CreateUnicastIpAddressEntry"),
		remove:     dll.NewProc("DeleteUnicastIpAddressEntry"),
	}
}

// An ipHelper has the procedures of iphlpapi.dll that golang.org/x/sys/windows lacks.
type ipHelper struct{ initialize, create, remove *windows.LazyProc }

// Able implements interfaces.
func (h ipHelper) Able(on string) error {
	err := h.mayCall()
	if err == nil {
		_, err = indexOf(on)
	}
	return err
}

// mayCall returns why this process cannot call the procedures, if so. wine 8.0 does not have them.
func (h ipHelper) mayCall() error {
	for _, p := range []*windows.LazyProc{h.initialize, h.create, h.remove} {
		if err := p.Find(); err != nil {
			return fmt.Errorf("iphlpapi.dll has no %s: %w", p.Name, errors.ErrUnsupported)
		}
	}
	if !windows.GetCurrentProcessToken().IsElevated() {
		return fmt.Errorf("this process does not run as an administrator: %w", fs.ErrPermission)
	}
	return nil
}

// indexOf returns the index of the interface with an alias (empty: the loopback interface).
func indexOf(name string) (uint32, error) {
	all, err := net.Interfaces()
	if err != nil {
		return 0, fmt.Errorf("list the interfaces of this machine: %w", err)
	}
	for _, i := range all {
		if i.Name == name || name == "" && i.Flags&net.FlagLoopback != 0 {
			return uint32(i.Index), nil
		}
	}
	return 0, fs.ErrNotExist
}

// List implements interfaces.
func (ipHelper) List() ([]assigned, error) {
	var table *windows.MibUnicastIpAddressTable
	if err := windows.GetUnicastIpAddressTable(windows.AF_UNSPEC, &table); err != nil {
		return nil, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	defer windows.FreeMibTable(unsafe.Pointer(table))
	all := make([]assigned, 0, table.NumEntries)
	for _, row := range unsafe.Slice(&table.Table[0], table.NumEntries) {
		if addr, ok := addrIn(&row.Address); ok {
			all = append(all, assigned{
				addr: addr, index: row.InterfaceIndex,
				created:  uint64(row.CreationTimeStamp.HighDateTime)<<32 | uint64(row.CreationTimeStamp.LowDateTime),
				alone:    int(row.OnLinkPrefixLength) == addr.BitLen(),
				noSource: row.SkipAsSource != 0,
				state:    stateOf(row.DadState),
			})
		}
	}
	return all, nil
}

func stateOf(dad uint32) addressState {
	switch dad {
	case windows.IpDadStatePreferred, windows.IpDadStateDeprecated:
		return usable
	case windows.IpDadStateDuplicate:
		return duplicate
	}
	return tentative
}

// addrIn returns the address in a SOCKADDR_INET.
func addrIn(s *windows.RawSockaddrInet6) (netip.Addr, bool) {
	switch s.Family {
	case windows.AF_INET:
		return netip.AddrFrom4((*windows.RawSockaddrInet4)(unsafe.Pointer(s)).Addr), true
	case windows.AF_INET6:
		return netip.AddrFrom16(s.Addr), true
	}
	return netip.Addr{}, false
}

// row returns a row for an address of an interface, with the defaults of Windows in its other fields.
func (h ipHelper) row(index uint32, addr netip.Addr) *windows.MibUnicastIpAddressRow {
	row := new(windows.MibUnicastIpAddressRow)
	_, _, _ = h.initialize.Call(uintptr(unsafe.Pointer(row))) // has no result
	row.InterfaceIndex = index
	if addr.Is4() {
		s := (*windows.RawSockaddrInet4)(unsafe.Pointer(&row.Address))
		s.Family, s.Addr = windows.AF_INET, addr.As4()
	} else {
		row.Address.Family, row.Address.Addr = windows.AF_INET6, addr.As16()
	}
	return row
}

// Add implements interfaces.
func (h ipHelper) Add(on string, addr netip.Addr) error {
	index, err := indexOf(on)
	if err != nil {
		return err
	}
	row := h.row(index, addr)
	row.OnLinkPrefixLength = uint8(addr.BitLen())
	row.SkipAsSource = 1
	return call(h.create, row)
}

// Remove implements interfaces.
func (h ipHelper) Remove(a assigned) error {
	if err := h.mayCall(); err != nil {
		return err
	}
	return call(h.remove, h.row(a.index, a.addr))
}

// call calls a procedure that returns its error instead of setting GetLastError.
func call(p *windows.LazyProc, row *windows.MibUnicastIpAddressRow) error {
	status, _, _ := p.Call(uintptr(unsafe.Pointer(row)))
	switch errno := syscall.Errno(status); errno {
	case 0:
		return nil
	case windows.ERROR_OBJECT_ALREADY_EXISTS:
		return fmt.Errorf("%w: %w", errno, fs.ErrExist)
	case windows.ERROR_NOT_FOUND:
		return fmt.Errorf("%w: %w", errno, fs.ErrNotExist)
	default:
		return errno
	}
}
