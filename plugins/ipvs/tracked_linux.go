// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// tracked tells of each connection that the kernel's connection tracking knows, in
// the network namespace of the calling thread.
func tracked(of sdk.Family, tell func(flow)) error {
	inet := netlink.InetFamily(unix.AF_INET)
	if of == sdk.IPv6 {
		inet = unix.AF_INET6
	}
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer h.Close()
	all, err := h.ConntrackTableList(netlink.ConntrackTable, inet)
	for _, f := range all {
		from, ok1 := netip.AddrFromSlice(f.Forward.SrcIP)
		to, ok2 := netip.AddrFromSlice(f.Forward.DstIP)
		for _, p := range []sdk.Protocol{sdk.TCP, sdk.SCTP} {
			if ok1 && ok2 && number(p) == uint16(f.Forward.Protocol) {
				tell(flow{p, netip.AddrPortFrom(from.Unmap(), f.Forward.SrcPort), netip.AddrPortFrom(to.Unmap(), f.Forward.DstPort)})
			}
		}
	}
	return err
}
