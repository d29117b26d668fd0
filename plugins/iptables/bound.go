// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/sdk"
)

// addressesEvery is how often the node's addresses are looked at.
const addressesEvery = 2 * time.Second

// bound are the addresses of family on flows.IPVSDevice that no other device has: as the
// ranges of ClusterIPs, where one holds them, since there may be thousands.
func bound(family sdk.Family, clusterIPs []netip.Prefix) ([]netip.Prefix, error) {
	device, err := net.InterfaceByName(flows.IPVSDevice)
	if err != nil {
		return nil, nil // mostly there is none
	}
	here, err := flows.Addrs(device.Addrs)
	if err != nil || len(here) == 0 {
		return nil, err
	}
	everywhere, err := flows.Addrs(net.InterfaceAddrs)
	if err != nil {
		return nil, err
	}
	return ranges(family, clusterIPs, here, everywhere), nil
}

// ranges are the addresses here that are not more often everywhere.
func ranges(family sdk.Family, clusterIPs []netip.Prefix, here, everywhere map[netip.Addr]int) []netip.Prefix {
	found := make(map[netip.Prefix]bool)
	for addr, times := range here {
		if sdk.FamilyOf(addr) != family || frame.OnLink(addr) || everywhere[addr] > times {
			continue
		}
		of := netip.PrefixFrom(addr, addr.BitLen())
		if i := slices.IndexFunc(clusterIPs, func(p netip.Prefix) bool { return p.Contains(addr) }); i >= 0 {
			of = clusterIPs[i].Masked()
		}
		found[of] = true
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) })
}

// isBound reports whether an ipvs dataplane bound addr, when the node was looked at last.
func (n nodeConfig) isBound(addr netip.Addr) bool {
	return slices.ContainsFunc(n.bound, func(r netip.Prefix) bool { return r.Contains(addr) })
}
