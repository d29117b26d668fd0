// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/pointsman/pointsman/plugins/internal/flows"
)

// machineAddresses are those that the machine has now.
func machineAddresses() ([]address, error) {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	foreign := -1
	link, err := netlink.LinkByName(flows.IPVSDevice)
	switch {
	case err == nil:
		foreign = link.Attrs().Index
	case !errors.As(err, new(netlink.LinkNotFoundError)):
		return nil, fmt.Errorf("look for the device %s: %w", flows.IPVSDevice, err)
	}
	all := make([]address, 0, len(list))
	for _, a := range list {
		addr, ok := netip.AddrFromSlice(a.IP)
		if !ok {
			continue
		}
		ones, _ := a.Mask.Size()
		all = append(all, address{netip.PrefixFrom(addr.Unmap(), ones), a.LinkIndex == foreign})
	}
	return all, nil
}
