// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package userspace

import (
	"fmt"
	"net"
	"net/netip"
)

// machineAddresses returns the addresses of all interfaces.
func machineAddresses() ([]address, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	var all []address
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, address{prefix: p})
		}
	}
	return all, nil
}
