// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"net/netip"
	"slices"
	"strings"
)

// parseAddr reads an address as Kubernetes does: an old object may write IPv4
// octets with leading zeros, and means decimal by them.
func parseAddr(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		addr, err = netip.ParseAddr(withoutLeadingZeros(s))
	}
	return addr, err == nil
}

// parsePrefix reads a range such as 10.0.0.0/8, and clears what its length does
// not cover.
func parsePrefix(s string) (netip.Prefix, bool) {
	s = strings.TrimSpace(s)
	p, err := netip.ParsePrefix(s)
	if err != nil {
		addr, bits, _ := strings.Cut(s, "/")
		p, err = netip.ParsePrefix(withoutLeadingZeros(addr) + "/" + bits)
	}
	return p.Masked(), err == nil
}

func withoutLeadingZeros(s string) string {
	octets := strings.Split(s, ".")
	if len(octets) != 4 {
		return s
	}
	for i, o := range octets {
		if o = strings.TrimLeft(o, "0"); o == "" {
			o = "0"
		}
		octets[i] = o
	}
	return strings.Join(octets, ".")
}

// broadcast is every machine's on a link, so it is no machine's.
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// Unusable says why addr is no address that a machine can have; empty: it is one.
func Unusable(addr netip.Addr) string { return unusable(addr, true) }

// unusable says why nothing may be served at addr; empty: it may.
func unusable(addr netip.Addr, loopback bool) string {
	switch {
	case addr.Zone() != "":
		return "has a zone"
	case addr.Is4In6():
		return "is an IPv4 address written as IPv6"
	case addr.IsUnspecified():
		return "is unspecified"
	case addr.IsMulticast():
		return "is multicast"
	case addr == broadcast:
		return "is the broadcast address"
	case addr.IsLoopback() && !loopback:
		return "is loopback"
	}
	return ""
}

// unfit says why nothing may be sent to addr, nor a Service take it from outside:
// each machine has a link of its own.
func unfit(addr netip.Addr, loopback bool) string {
	if addr.IsLinkLocalUnicast() {
		return "is link-local"
	}
	return unusable(addr, loopback)
}

func within(addr netip.Addr, ranges []netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(addr) })
}
