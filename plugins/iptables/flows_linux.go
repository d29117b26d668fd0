// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// translated calls tell for each connection of family that the kernel sends
// elsewhere than the caller asked, and that is established: of TCP those with both
// ends open, of the others all that are remembered.
func translated(family sdk.Family, tell func(flow)) error {
	inet := netlink.InetFamily(unix.AF_INET)
	if family == sdk.IPv6 {
		inet = unix.AF_INET6
	}
	flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, inet)
	if err != nil {
		return fmt.Errorf("list %s connections: %w", family, err)
	}
	for _, f := range flows {
		from, ok := netip.AddrFromSlice(f.Forward.SrcIP)
		to, ok2 := netip.AddrFromSlice(f.Forward.DstIP)
		if !ok || !ok2 || f.Forward.DstIP.Equal(f.Reverse.SrcIP) && f.Forward.DstPort == f.Reverse.SrcPort {
			continue
		}
		if tcp, ok := f.ProtoInfo.(*netlink.ProtoInfoTCP); ok && tcp.State != established {
			continue
		}
		tell(flow{f.Forward.Protocol, netip.AddrPortFrom(from.Unmap(), f.Forward.SrcPort), netip.AddrPortFrom(to.Unmap(), f.Forward.DstPort)})
	}
	return nil
}

// established is the kernel's TCP_CONNTRACK_ESTABLISHED.
const established = 3
