// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// Forget lists the kernel's flows of family, in the network namespace of the
// calling thread, deletes those that s finds stale, and says how many. It needs
// CAP_NET_ADMIN. A flow that ends by itself meanwhile is no error.
func Forget(family sdk.Family, s Served) (int, error) {
	if s.Empty() {
		return 0, nil
	}
	inet := netlink.InetFamily(unix.AF_INET)
	if family == sdk.IPv6 {
		inet = unix.AF_INET6
	}
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER) // one socket for them all
	if err != nil {
		return 0, fmt.Errorf("open a socket to forget %s udp flows: %w", family, err)
	}
	defer h.Close()
	n, err := h.ConntrackDeleteFilters(netlink.ConntrackTable, inet, stale{s})
	if err != nil {
		return int(n), fmt.Errorf("forget stale %s udp flows: %w", family, err)
	}
	return int(n), nil
}

// stale is the filter that package netlink asks about each flow.
type stale struct{ served Served }

func (s stale) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	if s.served.step != nil {
		s.served.step()
	}
	if f.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	to, ok := netip.AddrFromSlice(f.Forward.DstIP)
	reply, ok2 := netip.AddrFromSlice(f.Reverse.SrcIP)
	return ok && ok2 && s.served.Stale(Flow{
		To:    netip.AddrPortFrom(to.Unmap(), f.Forward.DstPort),
		Reply: netip.AddrPortFrom(reply.Unmap(), f.Reverse.SrcPort),
	})
}
