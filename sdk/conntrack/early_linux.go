// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// ForgetEarly deletes the kernel's entries of TCP and SCTP connections to frontends of services that
// began before the frontend was served: nothing has answered them, and their destination was not
// translated. The kernel would send each retry of the client where it sent the first packet
// (kubernetes#101607). Entries of connections that were answered stay. takesNodePorts reports whether
// an address is one of this node's that take node ports now; step is called for each entry that is
// looked at. ForgetEarly returns the number of deleted entries, and needs CAP_NET_ADMIN.
func ForgetEarly(family sdk.Family, services []sdk.Service, takesNodePorts func(netip.Addr) bool, step func()) (int, error) {
	protocols := map[sdk.Protocol]byte{sdk.TCP: unix.IPPROTO_TCP, sdk.SCTP: unix.IPPROTO_SCTP}
	frontends := make(map[destination]bool)
	for _, svc := range services {
		if number, ok := protocols[svc.Name.Protocol]; ok && svc.Name.Family == family {
			for _, f := range svc.Frontends {
				frontends[destination{number, f.Addr}] = true
			}
		}
	}
	if len(frontends) == 0 {
		return 0, nil
	}
	inet, every := uint8(unix.AF_INET), netip.IPv4Unspecified()
	if family == sdk.IPv6 {
		inet, every = unix.AF_INET6, netip.IPv6Unspecified()
	}
	var found []map[uint16][]byte
	err := request(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, inet).ExecuteIter(unix.NETLINK_NETFILTER, 0, func(message []byte) bool {
		step()
		entry := attributes(message[min(len(message), nl.SizeofNfgenmsg):])
		if to, ok := early(entry); ok {
			every := destination{to.protocol, netip.AddrPortFrom(every, to.addr.Port())}
			if frontends[to] || frontends[every] && takesNodePorts(to.addr.Addr()) {
				found = append(found, map[uint16][]byte{
					nl.CTA_TUPLE_ORIG | unix.NLA_F_NESTED: slices.Clone(entry[nl.CTA_TUPLE_ORIG]),
					nl.CTA_ZONE:                           slices.Clone(entry[nl.CTA_ZONE]),
					nl.CTA_ID:                             slices.Clone(entry[nl.CTA_ID]), // do not delete a new entry in its place
				})
			}
		}
		return true
	})
	if err != nil {
		return 0, fmt.Errorf("list %s connections: %w", family, err)
	}
	n := 0
	for _, entry := range found {
		remove := request(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK, inet)
		for kind, value := range entry {
			if value != nil {
				remove.AddData(nl.NewRtAttr(int(kind), value))
			}
		}
		switch _, err := remove.Execute(unix.NETLINK_NETFILTER, 0); {
		case err == nil:
			n++
		case !errors.Is(err, unix.ENOENT): // it has ended by itself
			return n, fmt.Errorf("delete %s connections that nothing answered: %w", family, err)
		}
	}
	return n, nil
}

// A destination is the destination of a connection.
type destination struct {
	protocol byte
	addr     netip.AddrPort
}

const seenReply = 1 << 1 // IPS_SEEN_REPLY

// early returns the destination of an entry that was not answered and not translated.
func early(entry map[uint16][]byte) (to destination, ok bool) {
	if status := entry[nl.CTA_STATUS]; len(status) < 4 || binary.BigEndian.Uint32(status)&seenReply != 0 {
		return to, false
	}
	to = end(entry[nl.CTA_TUPLE_ORIG], nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST, nl.CTA_PROTO_DST_PORT)
	return to, to.addr.IsValid() && to == end(entry[nl.CTA_TUPLE_REPLY], nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC, nl.CTA_PROTO_SRC_PORT)
}

// end returns one end of one direction of an entry.
func end(tuple []byte, v4, v6, port uint16) (d destination) {
	all := attributes(tuple)
	ip, proto := attributes(all[nl.CTA_TUPLE_IP]), attributes(all[nl.CTA_TUPLE_PROTO])
	addr, ok := netip.AddrFromSlice(ip[v4])
	if !ok {
		addr, ok = netip.AddrFromSlice(ip[v6])
	}
	if p, number := proto[port], proto[nl.CTA_PROTO_NUM]; ok && len(p) == 2 && len(number) == 1 {
		d = destination{number[0], netip.AddrPortFrom(addr, binary.BigEndian.Uint16(p))}
	}
	return d
}

// request returns a netlink request about the connections of an address family.
func request(message, flags int, inet uint8) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|message, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: inet, Version: nl.NFNETLINK_V0})
	return r
}

// attributes returns the netlink attributes in value, by type.
func attributes(value []byte) map[uint16][]byte {
	list, err := nl.ParseRouteAttr(value)
	if err != nil {
		return nil
	}
	all := make(map[uint16][]byte, len(list))
	for _, a := range list {
		all[a.Attr.Type&nl.NLA_TYPE_MASK] = a.Value
	}
	return all
}
