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

// addressesEvery is the interval at which checkAddrs reads the node's addresses.
const addressesEvery = 2 * time.Second

// ipvsPrefixes returns the addresses that only flows.IPVSDevice has: an ipvs dataplane binds ClusterIPs and
// external addresses there, and they must not take node ports. A ClusterIP range stands for all its addresses,
// because there may be thousands.
func ipvsPrefixes(family sdk.Family, clusterIPs []netip.Prefix) ([]netip.Prefix, error) {
	device, err := net.InterfaceByName(flows.IPVSDevice)
	if err != nil {
		return nil, nil // the usual case: the node has no such device
	}
	here, err := flows.Addrs(device.Addrs)
	if err != nil || len(here) == 0 {
		return nil, err
	}
	everywhere, err := flows.Addrs(net.InterfaceAddrs)
	if err != nil {
		return nil, err
	}
	return groupByRange(family, clusterIPs, here, everywhere), nil
}

// groupByRange returns the prefixes for the addresses in here that no other device has: everywhere counts them no
// more often.
func groupByRange(family sdk.Family, clusterIPs []netip.Prefix, here, everywhere map[netip.Addr]int) []netip.Prefix {
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

// isBound reports whether an ipvs dataplane had bound addr when the node's addresses were last read.
func (n nodeConfig) isBound(addr netip.Addr) bool {
	return slices.ContainsFunc(n.bound, func(r netip.Prefix) bool { return r.Contains(addr) })
}

// takesNodePorts returns a function that reports whether an address takes node ports. It uses the node's
// present addresses.
func (f *family) takesNodePorts() (func(netip.Addr) bool, error) {
	local, err := flows.Local()
	return func(a netip.Addr) bool {
		node := &f.rules.node
		return node.node.TakesNodePorts(a) && !node.isBound(a) && slices.ContainsFunc(local, func(p netip.Prefix) bool { return p.Contains(a) })
	}, err
}
