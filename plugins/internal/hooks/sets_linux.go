// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/internal/trace"
)

// member asks the kernel whether a set has the parts of a packet that a rule names. An error: the set is
// of a kind that is not looked up, or the kernel could not be asked.
func member(set, parts string, p trace.Packet) (bool, error) {
	kind, err := kindOf(set)
	if err != nil {
		return false, fmt.Errorf("ask for the set %s: %w", set, err)
	}
	l, err := lookedUp(set, kind, parts, p)
	if err != nil {
		return false, err
	}
	err = l.ask(set)
	if errors.Is(err, unix.Errno(nl.IPSET_ERR_EXIST)) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask whether the set %s has %+v: %w", set, l, err)
	}
	return true, nil
}

// ask asks for an entry of a set. The kernel's answer IPSET_ERR_EXIST is that it has none.
func (l lookup) ask(set string) error {
	r := about(nl.IPSET_CMD_TEST, set, unix.AF_INET)
	data := nl.NewRtAttr(nl.IPSET_ATTR_DATA|unix.NLA_F_NESTED, nil)
	if l.addr.IsValid() {
		data.AddChild(address(nl.IPSET_ATTR_IP, l.addr))
	}
	if n, has := map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}[l.protocol]; has {
		data.AddChild(nl.NewRtAttr(nl.IPSET_ATTR_PROTO, nl.Uint8Attr(n)))
	}
	if l.hasPort {
		data.AddChild(nl.NewRtAttr(nl.IPSET_ATTR_PORT|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint16(nil, l.port)))
	}
	if l.second.IsValid() {
		data.AddChild(address(nl.IPSET_ATTR_IP2, l.second))
	}
	data.AddChild(&nl.Uint32Attribute{Type: nl.IPSET_ATTR_LINENO | unix.NLA_F_NET_BYTEORDER})
	r.AddData(data)
	_, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	return err
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

// about is a message about a set.
func about(command int, set string, family uint8) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(command|unix.NFNL_SUBSYS_IPSET<<8, nl.GetIpsetFlags(command))
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(set)))
	return r
}

// marksBy has ipset print a set whose entries have marks, if it has the packet.
func marksBy(ctx context.Context) func(set, parts string, p trace.Packet) ([2]uint32, bool, error) {
	return func(set, parts string, p trace.Packet) (bits [2]uint32, in bool, err error) {
		in, err = member(set, parts, p)
		if !in || err != nil {
			return bits, false, err
		}
		const kind = "hash:ip,port"
		if is, err := kindOf(set); err != nil || is != kind {
			return bits, false, fmt.Errorf("the tracer does not see the marks of the set %s, which is of %s", set, is)
		}
		l, err := lookedUp(set, kind, parts, p)
		if err != nil {
			return bits, false, err
		}
		out, err := exec.CommandContext(ctx, "ipset", "save", set).Output()
		if err != nil {
			return bits, false, fmt.Errorf("ipset save %s: %w", set, err)
		}
		if bits, in = markIn(string(out), l); !in {
			return bits, false, fmt.Errorf("ipset does not show %+v in the set %s, which has it", l, set)
		}
		return bits, true, nil
	}
}

// kindOf is what kind a set is of, such as "hash:ip". To be asked whether a set has an entry of another
// kind than its own the kernel answers that it has not.
func kindOf(set string) (string, error) {
	r := about(nl.IPSET_CMD_HEADER, set, unix.AF_NETLINK)
	answers, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return "", err
	}
	for _, a := range answers {
		attributes, err := nl.ParseRouteAttr(a[min(len(a), nl.SizeofNfgenmsg):])
		if err != nil {
			return "", err
		}
		for _, is := range attributes {
			if is.Attr.Type == nl.IPSET_ATTR_TYPENAME {
				return nl.BytesToString(is.Value), nil
			}
		}
	}
	return "", fmt.Errorf("the kernel does not say what kind it is of")
}
