// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Local returns the prefixes of both families that the kernel takes for this node's own, in order: those of
// its local table (ip route show table local), which has each address of an interface and what an operator
// added. What only IPVSDevice has is not among them.
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
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, only, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
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
