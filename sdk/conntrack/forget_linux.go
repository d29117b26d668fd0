// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// Forget lists the kernel's flows of family in the calling thread's network namespace, deletes
// those that are stale according to s, and returns their number. It needs CAP_NET_ADMIN. A flow
// that ends by itself meanwhile is not an error.
func Forget(family sdk.Family, s Served) (int, error) {
	if s.Empty() {
		return 0, nil
	}
	n, err := forget(family, stale{s})
	if err != nil {
		return n, fmt.Errorf("forget stale %s udp flows: %w", family, err)
	}
	return n, nil
}

// ForgetFailed deletes the kernel's entries of TCP connections that were reset or never
// answered, and whose replies come from an address for which gone returns true, because no
// socket is there any more. Connections that were established, or were closed properly, stay.
// It returns the number of entries, and needs CAP_NET_ADMIN.
func ForgetFailed(family sdk.Family, gone func(reply netip.AddrPort) bool) (int, error) {
	n, err := forget(family, failed(gone))
	if err != nil {
		return n, fmt.Errorf("forget failed %s tcp connections: %w", family, err)
	}
	return n, nil
}

// forget deletes the entries of family that match.
func forget(family sdk.Family, match netlink.CustomConntrackFilter) (int, error) {
	inet := netlink.InetFamily(unix.AF_INET)
	if family == sdk.IPv6 {
		inet = unix.AF_INET6
	}
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER) // one socket for all families
	if err != nil {
		return 0, fmt.Errorf("open a socket: %w", err)
	}
	defer h.Close()
	n, err := h.ConntrackDeleteFilters(netlink.ConntrackTable, inet, match)
	return int(n), err
}

// stale is the filter that package netlink calls for each flow.
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

// failed is the filter of ForgetFailed.
type failed func(reply netip.AddrPort) bool

// States in the kernel (enum tcp_conntrack) of connections in which a new SYN from the same
// port is sent where the previous one was sent. In other states the kernel chooses again.
const (
	tcpSynSent = 1 // TCP_CONNTRACK_SYN_SENT: not answered
	tcpClose   = 8 // TCP_CONNTRACK_CLOSE: ended by a reset
)

func (gone failed) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	tcp, ok := f.ProtoInfo.(*netlink.ProtoInfoTCP)
	if !ok || tcp.State != tcpSynSent && tcp.State != tcpClose {
		return false
	}
	reply, ok := netip.AddrFromSlice(f.Reverse.SrcIP)
	return ok && gone(netip.AddrPortFrom(reply.Unmap(), f.Reverse.SrcPort))
}
