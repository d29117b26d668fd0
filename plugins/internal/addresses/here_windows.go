// SPDX-License-Identifier: Apache-2.0

package addresses

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

// Here is the system of this machine: Windows' IP Helper.
func Here() System {
	dll := windows.NewLazySystemDLL("iphlpapi.dll")
	return ipHelper{
		initialize: dll.NewProc("InitializeUnicastIpAddressEntry"),
		create:     dll.NewProc("CreateUnicastIpAddressEntry"),
		remove:     dll.NewProc("DeleteUnicastIpAddressEntry"),
	}
}

// An ipHelper is iphlpapi.dll, with the calls that golang.org/x/sys/windows does not have.
type ipHelper struct{ initialize, create, remove *windows.LazyProc }

// Able looks whether Windows has the calls, which wine 8.0 has not, and lets this process call them.
func (h ipHelper) Able() error {
	for _, p := range []*windows.LazyProc{h.initialize, h.create, h.remove} {
		if err := p.Find(); err != nil {
			return fmt.Errorf("iphlpapi.dll has no %s: %w", p.Name, errors.ErrUnsupported)
		}
	}
	if !windows.GetCurrentProcessToken().IsElevated() {
		return fmt.Errorf("this process is no administrator's: %w", fs.ErrPermission)
	}
	return nil
}

// Interface finds an interface by its alias.
func (ipHelper) Interface(name string) (Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return Interface{}, fmt.Errorf("list the interfaces of this machine: %w", err)
	}
	for _, i := range all {
		if i.Name == name || name == "" && i.Flags&net.FlagLoopback != 0 {
			return Interface{i.Name, uint32(i.Index)}, nil
		}
	}
	return Interface{}, fs.ErrNotExist
}

// List asks for both families at once.
func (ipHelper) List() ([]Address, error) {
	var table *windows.MibUnicastIpAddressTable
	if err := windows.GetUnicastIpAddressTable(windows.AF_UNSPEC, &table); err != nil {
		return nil, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	defer windows.FreeMibTable(unsafe.Pointer(table))
	all := make([]Address, 0, table.NumEntries)
	for _, row := range unsafe.Slice(&table.Table[0], table.NumEntries) {
		if addr, ok := addrIn(&row.Address); ok {
			all = append(all, Address{
				Addr: addr, Index: row.InterfaceIndex,
				Created:  uint64(row.CreationTimeStamp.HighDateTime)<<32 | uint64(row.CreationTimeStamp.LowDateTime),
				Alone:    int(row.OnLinkPrefixLength) == addr.BitLen(),
				NoSource: row.SkipAsSource != 0,
				State:    stateOf(row.DadState),
			})
		}
	}
	return all, nil
}

func stateOf(dad uint32) State {
	switch dad {
	case windows.IpDadStatePreferred, windows.IpDadStateDeprecated:
		return Usable
	case windows.IpDadStateDuplicate:
		return Duplicate
	}
	return Tentative
}

// addrIn is the address in the union of socket addresses that a row has.
func addrIn(s *windows.RawSockaddrInet6) (netip.Addr, bool) {
	switch s.Family {
	case windows.AF_INET:
		return netip.AddrFrom4((*windows.RawSockaddrInet4)(unsafe.Pointer(s)).Addr), true
	case windows.AF_INET6:
		return netip.AddrFrom16(s.Addr), true
	}
	return netip.Addr{}, false
}

// row is addr on an interface, with everything else as Windows has it by default.
func (h ipHelper) row(index uint32, addr netip.Addr) (*windows.MibUnicastIpAddressRow, error) {
	if err := h.Able(); err != nil {
		return nil, err
	}
	row := new(windows.MibUnicastIpAddressRow)
	_, _, _ = h.initialize.Call(uintptr(unsafe.Pointer(row))) // it returns nothing
	row.InterfaceIndex = index
	if addr.Is4() {
		s := (*windows.RawSockaddrInet4)(unsafe.Pointer(&row.Address))
		s.Family, s.Addr = windows.AF_INET, addr.As4()
	} else {
		row.Address.Family, row.Address.Addr = windows.AF_INET6, addr.As16()
	}
	return row, nil
}

// Add gives an interface addr, until the machine starts again.
func (h ipHelper) Add(on Interface, addr netip.Addr) error {
	row, err := h.row(on.Index, addr)
	if err != nil {
		return err
	}
	row.OnLinkPrefixLength = uint8(addr.BitLen())
	row.SkipAsSource = 1
	return call(h.create, row)
}

// Remove takes an address away from the interface that has it.
func (h ipHelper) Remove(a Address) error {
	row, err := h.row(a.Index, a.Addr)
	if err != nil {
		return err
	}
	return call(h.remove, row)
}

// call calls p with row. It returns a status, not an error of GetLastError.
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
