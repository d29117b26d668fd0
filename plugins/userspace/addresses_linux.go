// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/flows"
)

// machineAddresses returns the addresses of the kernel's local table, and those that only the ipvs mode has bound.
func machineAddresses() ([]address, error) {
	local, err := flows.Local()
	if err != nil {
		return nil, err
	}
	all := make([]address, 0, len(local))
	for _, p := range local {
		all = append(all, address{prefix: p, whole: true})
	}
	device, err := net.InterfaceByName(flows.IPVSDevice)
	if err != nil {
		return all, nil // usually there is no such device
	}
	bound, err := flows.Addrs(device.Addrs)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of %s: %w", flows.IPVSDevice, err)
	}
	for addr := range bound {
		if p := netip.PrefixFrom(addr, addr.BitLen()); !slices.Contains(local, p) {
			all = append(all, address{prefix: p, foreign: true})
		}
	}
	return all, nil
}
