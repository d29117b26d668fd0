// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"net/netip"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// This file has the expressions by which rules load and compare parts of packets.

// An ip is an IP family. It knows the header offsets and how many 4-byte registers an address takes.
type ip struct{ sdk.Family }

// ipOf returns the ip of a family.
func ipOf(f sdk.Family) ip { return ip{f} }

// nftName returns nft's name of the family.
func (f ip) nftName() string { return byFamily(f.Family, "ip", "ip6") }

// A rule is a sequence of expressions.
type rule []nftnl.Expr

// A chain is a chain and its rules.
type chain struct {
	Name  string
	Hook  *nftnl.Hook // nil: a regular chain
	Rules []rule
}

// byFamily returns four for IPv4 and six for IPv6.
func byFamily[T any](f sdk.Family, four, six T) T {
	if f == sdk.IPv6 {
		return six
	}
	return four
}

// NFT returns the family's number in nf_tables.
func (f ip) NFT() nftnl.Family { return byFamily(f.Family, nftnl.IPv4, nftnl.IPv6) }

// Words returns the number of registers that an address takes.
func (f ip) Words() nftnl.Reg { return byFamily[nftnl.Reg](f.Family, 1, 4) }

// Addr returns the field for an address in a key.
func (f ip) Addr() nftnl.Field { return byFamily(f.Family, nftnl.Addr4, nftnl.Addr6) }

// Saddr loads the source address.
func (f ip) Saddr(into nftnl.Reg) nftnl.Expr {
	return nftnl.Payload(nftnl.Network, byFamily[uint32](f.Family, 12, 8), uint32(f.Addr().Len), into)
}

// Daddr loads the destination address.
func (f ip) Daddr(into nftnl.Reg) nftnl.Expr {
	return nftnl.Payload(nftnl.Network, byFamily[uint32](f.Family, 16, 24), uint32(f.Addr().Len), into)
}

// OrigDaddr loads the destination address before translation.
func (f ip) OrigDaddr(into nftnl.Reg) nftnl.Expr {
	return nftnl.CTOriginal(byFamily(f.Family, nftnl.CTDstIP, nftnl.CTDstIP6), into)
}

// loadProto loads the protocol.
func loadProto(into nftnl.Reg) nftnl.Expr { return nftnl.Meta(nftnl.MetaL4Proto, into) }

// loadPort loads the destination port.
func loadPort(into nftnl.Reg) nftnl.Expr { return nftnl.Payload(nftnl.Transport, 2, 2, into) }

// loadOrigPort loads the destination port before translation.
func loadOrigPort(into nftnl.Reg) nftnl.Expr { return nftnl.CTOriginal(nftnl.CTProtoDst, into) }

// hostOrder encodes a number in host byte order, as marks and conntrack bits have it.
func hostOrder(n uint32) string { return string(binary.NativeEndian.AppendUint32(nil, n)) }

// ifname encodes a complete interface name for comparison.
func ifname(name string) string {
	var b [16]byte
	copy(b[:], name)
	return string(b[:])
}

// Bits of a connection's conntrack state and status.
const (
	stateInvalid = 1 << 0
	stateNew     = 1 << 3
	confirmed    = 1 << 3 // status IPS_CONFIRMED: the first packet has left
	translated   = 1 << 5 // status IPS_DST_NAT: the destination is translated
)

// matchState matches packets of connections in one of these states.
func matchState(state uint32) rule {
	return rule{nftnl.CT(nftnl.CTState, 0), nftnl.Mask(0, hostOrder(state)), nftnl.Cmp(nftnl.NotEqual, 0, hostOrder(0))}
}

// ifTranslated returns a rule for packets whose destination is translated, ifUntranslated for all others.
func ifTranslated(v nftnl.Verdict) rule   { return ifStatus(nftnl.NotEqual, v) }
func ifUntranslated(v nftnl.Verdict) rule { return ifStatus(nftnl.Equal, v) }

func ifStatus(op nftnl.CmpOp, v nftnl.Verdict) rule {
	return rule{nftnl.CT(nftnl.CTStatus, 0), nftnl.Mask(0, hostOrder(translated)), nftnl.Cmp(op, 0, hostOrder(0)), nftnl.Do(v)}
}

// matchStatus matches packets of connections that have all of these status bits.
func matchStatus(bits uint32) rule {
	return rule{nftnl.CT(nftnl.CTStatus, 0), nftnl.Mask(0, hostOrder(bits)), nftnl.Cmp(nftnl.Equal, 0, hostOrder(bits))}
}

// matchFromNode matches packets that the node itself sends: they have no input interface.
func matchFromNode() rule {
	return rule{nftnl.Meta(nftnl.MetaIif, 0), nftnl.Cmp(nftnl.Equal, 0, hostOrder(0))}
}

// matchPrefix matches if the address that load puts into register 0 is in a prefix.
func matchPrefix(load nftnl.Expr, in netip.Prefix) rule {
	if in.Bits() == 0 {
		return nil
	}
	bits := make([]byte, in.Addr().BitLen()/8)
	for i := range in.Bits() {
		bits[i/8] |= 0x80 >> (i % 8)
	}
	r := rule{load}
	if in.Bits() < in.Addr().BitLen() {
		r = append(r, nftnl.Mask(0, string(bits)))
	}
	return append(r, nftnl.Cmp(nftnl.Equal, 0, string(in.Masked().Addr().AsSlice())))
}
