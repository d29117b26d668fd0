// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// An Entry is a member of a set. The type of the set determines which fields are used.
type Entry struct {
	Addr     netip.Addr
	Protocol uint8 // IPPROTO_TCP and the like; 0: none
	Port     uint16
	HasPort  bool
	Second   netip.Addr
	Bits     int // prefix length of Second for a set of networks; 0 for a set of addresses
	Comment  string
	Mark     uint32 // the skbmark, with all bits in its mask; 0: none
}

// Request returns a message for a command (such as IPSET_CMD_TEST) on a set, with the flags that the command
// needs.
func Request(command int, set string) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(command|unix.NFNL_SUBSYS_IPSET<<8, nl.GetIpsetFlags(command))
	r.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(set)))
	return r
}

// Change sends a command for one member: IPSET_CMD_ADD, which also changes the comment and mark of an existing
// member, or IPSET_CMD_DEL. An error of the set itself is an nl.IPSetError.
func Change(command int, set string, e Entry) error {
	r := Request(command, set)
	r.AddData(e.attribute())
	_, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	if code := unix.Errno(0); errors.As(err, &code) && code >= nl.IPSET_ERR_PRIVATE {
		return nl.IPSetError(code)
	}
	return err
}

// Has reports whether a set has a member. A bitmap has none outside its range.
func Has(set string, e Entry) (bool, error) {
	err := Change(nl.IPSET_CMD_TEST, set, e)
	if errors.Is(err, nl.IPSetError(nl.IPSET_ERR_EXIST)) || errors.Is(err, nl.IPSetError(nl.IPSET_ERR_TYPE_SPECIFIC)) {
		return false, nil
	}
	return err == nil, err
}

func (e Entry) attribute() *nl.RtAttr {
	data := nl.NewRtAttr(nl.IPSET_ATTR_DATA|unix.NLA_F_NESTED, nil)
	if e.Addr.IsValid() {
		data.AddChild(address(nl.IPSET_ATTR_IP, e.Addr))
	}
	if e.Protocol != 0 {
		data.AddChild(nl.NewRtAttr(nl.IPSET_ATTR_PROTO, nl.Uint8Attr(e.Protocol)))
	}
	if e.HasPort {
		data.AddChild(nl.NewRtAttr(nl.IPSET_ATTR_PORT|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint16(nil, e.Port)))
	}
	if e.Second.IsValid() {
		data.AddChild(address(nl.IPSET_ATTR_IP2, e.Second))
	}
	if e.Bits != 0 {
		data.AddChild(nl.NewRtAttr(nl.IPSET_ATTR_CIDR2, nl.Uint8Attr(uint8(e.Bits))))
	}
	if e.Comment != "" {
		data.AddChild(nl.NewRtAttr(nl.IPSET_ATTR_COMMENT, nl.ZeroTerminated(e.Comment)))
	}
	if e.Mark != 0 {
		data.AddChild(nl.NewRtAttr(nl.IPSET_ATTR_SKBMARK|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint64(nil, uint64(e.Mark)<<32|0xffffffff)))
	}
	data.AddChild(&nl.Uint32Attribute{Type: nl.IPSET_ATTR_LINENO | unix.NLA_F_NET_BYTEORDER})
	return data
}

func address(kind int, a netip.Addr) *nl.RtAttr {
	in := nl.IPSET_ATTR_IPADDR_IPV4
	if a.Is6() {
		in = nl.IPSET_ATTR_IPADDR_IPV6
	}
	nested := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
	nested.AddChild(nl.NewRtAttr(in|unix.NLA_F_NET_BYTEORDER, a.AsSlice()))
	return nested
}
