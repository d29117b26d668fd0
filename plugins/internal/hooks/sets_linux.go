// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/internal/trace"
)

// ofAddresses are the kinds of sets whose entries are addresses or networks, and nothing beside.
var ofAddresses = []string{"hash:ip", "hash:net", "bitmap:ip"}

// member asks the kernel whether a set has the part of a packet that a rule names, which may be src or dst. An
// error: the set's entries are more than an address, or the kernel could not be asked.
func member(set, parts string, p trace.Packet) (bool, error) {
	var addr netip.Addr
	switch parts {
	case "src":
		addr = p.From.Addr()
	case "dst":
		addr = p.To.Addr()
	default:
		return false, fmt.Errorf("the tracer does not look up %s in the set %s", parts, set)
	}
	kind, err := kindOf(set)
	if err != nil {
		return false, fmt.Errorf("ask for the set %s: %w", set, err)
	}
	if !slices.Contains(ofAddresses, kind) {
		return false, fmt.Errorf("the tracer does not look up anything in the set %s, which is of %s", set, kind)
	}
	has, err := netlink.IpsetTest(set, &netlink.IPSetEntry{IP: addr.AsSlice()})
	if err != nil {
		return false, fmt.Errorf("ask whether the set %s has %s: %w", set, addr, err)
	}
	return has, nil
}

// kindOf is what kind a set is of, such as "hash:ip". To be asked whether a set has an entry of another
// kind than its own the kernel answers that it has not.
func kindOf(set string) (string, error) {
	r := nl.NewNetlinkRequest(nl.IPSET_CMD_HEADER|unix.NFNL_SUBSYS_IPSET<<8, nl.GetIpsetFlags(nl.IPSET_CMD_HEADER))
	r.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(unix.AF_NETLINK), Version: nl.NFNETLINK_V0})
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(set)))
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
