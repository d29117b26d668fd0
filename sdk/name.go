// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// A Name identifies a port of a Service in one IP family. It is the key everywhere: it is
// comparable and never parsed from a string.
type Name struct {
	Namespace string
	Service   string
	Port      string // the port's name; empty when the Service has one unnamed port
	Protocol  Protocol
	Family    Family
}

// String returns namespace and name as kubectl writes them, with the network as package net
// names it: "ns1/web:http/tcp4".
func (n Name) String() string {
	var b strings.Builder
	b.WriteString(n.Namespace + "/" + n.Service)
	if n.Port != "" {
		b.WriteString(":" + n.Port)
	}
	b.WriteString("/" + n.Network())
	return b.String()
}

// Network returns the protocol and family as package net names them: "tcp4", "udp6".
func (n Name) Network() string {
	switch n.Family {
	case IPv4:
		return n.Protocol.String() + "4"
	case IPv6:
		return n.Protocol.String() + "6"
	}
	return n.Protocol.String() + "?"
}

// Compare orders names by namespace, Service, port, protocol and family.
func (n Name) Compare(m Name) int {
	return cmp.Or(
		cmp.Compare(n.Namespace, m.Namespace),
		cmp.Compare(n.Service, m.Service),
		cmp.Compare(n.Port, m.Port),
		cmp.Compare(n.Protocol, m.Protocol),
		cmp.Compare(n.Family, m.Family),
	)
}

// A Protocol is a transport protocol. The zero value is invalid. A value that this version does
// not know is kept, and [Service.Check] refuses it.
type Protocol uint8

// Values of Protocol.
const (
	TCP Protocol = iota + 1
	UDP
	SCTP
)

var protocols = []string{TCP: "tcp", UDP: "udp", SCTP: "sctp"}

func (p Protocol) String() string { return word(protocols, uint8(p), "protocol") }

// A Family is an IP family. A dual-stack Service becomes two Services, one in each family. The
// zero value is invalid.
type Family uint8

// Values of Family.
const (
	IPv4 Family = iota + 1
	IPv6
)

var families = []string{IPv4: "ipv4", IPv6: "ipv6"}

func (f Family) String() string { return word(families, uint8(f), "family") }

// FamilyOf returns the family of addr. It treats an IPv4-mapped IPv6 address as IPv6, as the
// kernel's tables do: unmap it first if that is not intended.
func FamilyOf(addr netip.Addr) Family {
	switch {
	case addr.Is4():
		return IPv4
	case addr.Is6():
		return IPv6
	}
	return 0
}

// known reports whether words has an entry for v. Zero, the unset value, has none.
func known(words []string, v uint8) bool { return v > 0 && int(v) < len(words) }

func word(words []string, v uint8, what string) string {
	if known(words, v) {
		return words[v]
	}
	return fmt.Sprintf("%s(%d)", what, v)
}
