// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"net/netip"
	"strconv"

	"github.com/pointsman/pointsman/sdk"
)

// defaultNode returns the node of a scenario that does not say otherwise.
func defaultNode() sdk.Node {
	return sdk.Node{
		Name:          "n1",
		Addrs:         []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")},
		NodePorts:     []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
		Pods:          sdk.Pods{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.180.0.0/24"), netip.MustParsePrefix("fd00:10:180::/64")}},
		MasqueradeBit: 14,
		ServiceCIDRs:  []netip.Prefix{netip.MustParsePrefix("172.30.0.0/16"), netip.MustParsePrefix("fd00:172:30::/112")},
	}
}

func parseNode(lines []line) (sdk.Node, error) {
	n := defaultNode()
	for _, l := range lines {
		if err := parseFact(&n, l); err != nil {
			return n, err
		}
	}
	return n, nil
}

func parseFact(n *sdk.Node, l line) (err error) {
	rest := l.words[1:]
	switch l.words[0] {
	case "name":
		return one(l, &n.Name)
	case "addresses":
		n.Addrs = nil
		for _, word := range rest {
			addr, err := l.addr(word)
			if err != nil {
				return err
			}
			n.Addrs = append(n.Addrs, addr)
		}
	case "node-ports":
		n.NodePorts, err = l.prefixes(rest)
	case "service-cidrs":
		n.ServiceCIDRs, err = l.prefixes(rest)
	case "pods":
		n.Pods, err = parsePods(l)
	case "masquerade-all":
		n.MasqueradeAll = true
	case "mark-bit":
		bit, err := strconv.ParseUint(l.words[len(l.words)-1], 10, 5)
		if err != nil {
			return l.expected("mark-bit and a number from 0 to 31")
		}
		n.MasqueradeBit = uint8(bit)
	default:
		return l.expected("name, addresses, node-ports, service-cidrs, pods, masquerade-all or mark-bit")
	}
	return err
}

// parsePods reads "pods unknown", "pods bridge NAME", "pods interface PREFIX" or
// "pods RANGE…".
func parsePods(l line) (sdk.Pods, error) {
	rest := l.words[1:]
	switch {
	case len(rest) == 1 && rest[0] == "unknown":
		return sdk.Pods{}, nil
	case len(rest) == 2 && rest[0] == "bridge":
		return sdk.Pods{Bridge: rest[1]}, nil
	case len(rest) == 2 && rest[0] == "interface":
		return sdk.Pods{InterfacePrefix: rest[1]}, nil
	case len(rest) == 0:
		return sdk.Pods{}, l.expected("pods unknown, pods bridge NAME, pods interface PREFIX, or pods RANGE…")
	}
	cidrs, err := l.prefixes(rest)
	return sdk.Pods{CIDRs: cidrs}, err
}

func one(l line, to *string) error {
	if len(l.words) != 2 {
		return l.expected("%s and one word", l.words[0])
	}
	*to = l.words[1]
	return nil
}
