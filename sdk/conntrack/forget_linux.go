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

// ForgetEarly deletes the kernel's entries of TCP connections to frontends of services that began
// before the frontend was served: nothing has answered them, and their destination was not
// translated. The kernel would send each retry of the client where it sent the first packet
// (kubernetes#101607). SCTP does not need this: its entries end before the client tries again.
// Entries of connections that were answered stay. takesNodePorts reports whether an address of
// this node accepts node ports now; step is called for each entry that ForgetEarly examines. It
// returns the number of deleted entries, and needs CAP_NET_ADMIN.
func ForgetEarly(family sdk.Family, services []sdk.Service, takesNodePorts func(netip.Addr) bool, step func()) (int, error) {
	s := serving(sdk.TCP, family, services, takesNodePorts).Telling(step)
	if s.Empty() {
		return 0, nil
	}
	n, err := forget(family, early{s})
	if err != nil {
		return n, fmt.Errorf("forget %s tcp connections that nothing answered: %w", family, err)
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

// ends returns the destination of a flow, and the source of the replies that the kernel expects.
// They are equal if the destination was not translated.
func ends(f *netlink.ConntrackFlow) (to, reply netip.AddrPort) {
	dst, _ := netip.AddrFromSlice(f.Forward.DstIP) // an address that is not valid equals no frontend
	src, _ := netip.AddrFromSlice(f.Reverse.SrcIP)
	return netip.AddrPortFrom(dst.Unmap(), f.Forward.DstPort), netip.AddrPortFrom(src.Unmap(), f.Reverse.SrcPort)
}

// stale is the filter of Forget.
type stale struct{ served Served }

func (s stale) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	s.served.step()
	to, reply := ends(f)
	return f.Forward.Protocol == unix.IPPROTO_UDP && s.served.Stale(Flow{To: to, Reply: reply})
}

// States in the kernel (enum tcp_conntrack) of connections in which a new SYN from the same
// port is sent where the previous one was sent. In other states the kernel chooses again.
const (
	tcpSynSent = 1 // TCP_CONNTRACK_SYN_SENT: not answered
	tcpClose   = 8 // TCP_CONNTRACK_CLOSE: ended by a reset
)

// tcpState returns the state of a TCP connection, and zero for other protocols.
func tcpState(f *netlink.ConntrackFlow) uint8 {
	if tcp, ok := f.ProtoInfo.(*netlink.ProtoInfoTCP); ok {
		return tcp.State
	}
	return 0
}

// failed is the filter of ForgetFailed.
type failed func(reply netip.AddrPort) bool

func (gone failed) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	_, reply := ends(f)
	state := tcpState(f)
	return (state == tcpSynSent || state == tcpClose) && gone(reply)
}

// early is the filter of ForgetEarly.
type early struct{ served Served }

func (e early) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	e.served.step()
	to, reply := ends(f)
	_, ok := e.served.find(to)
	return ok && to == reply && tcpState(f) == tcpSynSent
}
