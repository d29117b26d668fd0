// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

const (
	destinationNAT = 1 << 5 // IPS_DST_NAT in a connection's status: a rule has translated the destination
	established    = 3      // TCP_CONNTRACK_ESTABLISHED
)

// eachTranslated calls f with each established connection of a family whose destination a rule has
// translated, and with the source of its replies. TCP connections count if both ends are open,
// others as long as conntrack has them. IPVS uses no rule, so its connections are left out.
func eachTranslated(family sdk.Family, f func(f flow, reply netip.AddrPort)) error {
	inet := uint8(unix.AF_INET)
	if family == sdk.IPv6 {
		inet = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: inet, Version: nl.NFNETLINK_V0})
	messages, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return fmt.Errorf("list %s connections: %w", family, err)
	}
	for _, m := range messages {
		if found, reply, ok := readFlow(m); ok {
			f(found, reply)
		}
	}
	return nil
}

// readFlow parses a connection. ok is false if its destination is not translated or it is not established.
func readFlow(message []byte) (f flow, reply netip.AddrPort, ok bool) {
	var status uint32
	state := byte(established)
	var to, from netip.AddrPort
	for kind, value := range attributes(message[min(len(message), nl.SizeofNfgenmsg):]) {
		switch kind {
		case nl.CTA_TUPLE_ORIG:
			from, to, f.protocol = readTuple(value)
		case nl.CTA_TUPLE_REPLY:
			reply, _, _ = readTuple(value)
		case nl.CTA_STATUS:
			if len(value) >= 4 {
				status = binary.BigEndian.Uint32(value)
			}
		case nl.CTA_PROTOINFO:
			if s := attributes(attributes(value)[nl.CTA_PROTOINFO_TCP])[nl.CTA_PROTOINFO_TCP_STATE]; len(s) > 0 {
				state = s[0]
			}
		}
	}
	f.from, f.to = from, to
	return f, reply, status&destinationNAT != 0 && state == established && to.IsValid()
}

// readTuple parses the source, destination and protocol of one direction.
func readTuple(value []byte) (from, to netip.AddrPort, protocol uint8) {
	all := attributes(value)
	ip, proto := attributes(all[nl.CTA_TUPLE_IP]), attributes(all[nl.CTA_TUPLE_PROTO])
	addr := func(v4, v6 uint16) netip.Addr {
		a, ok := netip.AddrFromSlice(ip[v4])
		if !ok {
			a, _ = netip.AddrFromSlice(ip[v6])
		}
		return a
	}
	port := func(kind uint16) uint16 {
		if p := proto[kind]; len(p) >= 2 {
			return binary.BigEndian.Uint16(p)
		}
		return 0
	}
	if p := proto[nl.CTA_PROTO_NUM]; len(p) > 0 {
		protocol = p[0]
	}
	return netip.AddrPortFrom(addr(nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC), port(nl.CTA_PROTO_SRC_PORT)),
		netip.AddrPortFrom(addr(nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST), port(nl.CTA_PROTO_DST_PORT)), protocol
}

// attributes returns the attributes in value by type.
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
