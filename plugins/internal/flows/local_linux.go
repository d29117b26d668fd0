// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// listRoutes lists routes. It tries again a few times if routes change during the dump
// (NLM_F_DUMP_INTR), as they do with each new pod.
func listRoutes(family int, only *netlink.Route, by uint64) (routes []netlink.Route, err error) {
	for range 5 {
		if routes, err = netlink.RouteListFiltered(family, only, by); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return routes, err
}

// Uplinks returns the uplinks of a family, sorted by name.
func Uplinks(of sdk.Family) (all []Uplink, err error) {
	family := map[sdk.Family]int{sdk.IPv4: netlink.FAMILY_V4, sdk.IPv6: netlink.FAMILY_V6}[of]
	routes, err := listRoutes(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list the kernel's main table: %w", err)
	}
	onLink, up := make(map[int][]netip.Prefix), make(map[int]bool)
	for _, r := range routes {
		var to netip.Prefix
		if r.Dst != nil {
			addr, _ := netip.AddrFromSlice(r.Dst.IP)
			ones, _ := r.Dst.Mask.Size()
			to = netip.PrefixFrom(addr.Unmap(), ones)
		}
		switch {
		case to.Bits() <= 0 && len(r.MultiPath) > 0:
			for _, hop := range r.MultiPath {
				up[hop.LinkIndex] = true
			}
		case to.Bits() <= 0:
			up[r.LinkIndex] = true
		case r.Gw == nil && r.Via == nil && len(r.MultiPath) == 0:
			onLink[r.LinkIndex] = append(onLink[r.LinkIndex], to)
		}
	}
	for index := range up {
		if link, err := net.InterfaceByIndex(index); err == nil && link.Flags&net.FlagLoopback == 0 { // with an error the interface is gone
			slices.SortFunc(onLink[index], netip.Prefix.Compare)
			all = append(all, Uplink{link.Name, onLink[index]})
		}
	}
	slices.SortFunc(all, func(a, b Uplink) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Local returns the prefixes of both families that the kernel treats as this node's own, sorted: those of
// its local table (ip route show table local), which has the addresses of all interfaces and the routes that
// an operator has added. It leaves out the addresses that only IPVSDevice has.
func Local() ([]netip.Prefix, error) {
	bound := -1
	link, err := netlink.LinkByName(IPVSDevice)
	switch {
	case err == nil:
		bound = link.Attrs().Index
	case !errors.As(err, new(netlink.LinkNotFoundError)):
		return nil, fmt.Errorf("look for the device %s: %w", IPVSDevice, err)
	}
	only := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}
	routes, err := listRoutes(netlink.FAMILY_ALL, only, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
	if err != nil {
		return nil, fmt.Errorf("list the kernel's local table: %w", err)
	}
	var all []netip.Prefix
	for _, r := range routes {
		if r.Dst == nil || r.LinkIndex == bound {
			continue
		}
		addr, ok := netip.AddrFromSlice(r.Dst.IP)
		if ones, _ := r.Dst.Mask.Size(); ok {
			all = append(all, netip.PrefixFrom(addr.Unmap(), ones))
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all), nil
}
