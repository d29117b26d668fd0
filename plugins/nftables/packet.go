// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"net/netip"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// This file has what rules load of packets and compare it with.

// An ip is an IP family: where its headers have what, in registers of 4 bytes.
type ip struct{ sdk.Family }

// ipOf is that of a family.
func ipOf(f sdk.Family) ip { return ip{f} }

// word is how nft calls the family.
func (f ip) word() string { return pick(f.Family, "ip", "ip6") }

// A rule is its expressions.
type rule []nftnl.Expr

// A chain is its rules.
type chain struct {
	Name  string
	Hook  *nftnl.Hook // nil: other chains lead to it
	Rules []rule
}

// pick is the value for a family.
func pick[T any](f sdk.Family, four, six T) T {
	if f == sdk.IPv6 {
		return six
	}
	return four
}

// NFT is the family as nf_tables has it.
func (f ip) NFT() nftnl.Family { return pick(f.Family, nftnl.IPv4, nftnl.IPv6) }

// Words are how many registers an address takes.
func (f ip) Words() nftnl.Reg { return pick[nftnl.Reg](f.Family, 1, 4) }

// Addr is an address in a key.
func (f ip) Addr() nftnl.Field { return pick(f.Family, nftnl.Addr4, nftnl.Addr6) }

// Saddr loads the source.
func (f ip) Saddr(into nftnl.Reg) nftnl.Expr {
	return nftnl.Payload(nftnl.Network, pick[uint32](f.Family, 12, 8), uint32(f.Addr().Len), into)
}

// Daddr loads the destination.
func (f ip) Daddr(into nftnl.Reg) nftnl.Expr {
	return nftnl.Payload(nftnl.Network, pick[uint32](f.Family, 16, 24), uint32(f.Addr().Len), into)
}

// OrigDaddr loads the destination, as it was before it was translated.
func (f ip) OrigDaddr(into nftnl.Reg) nftnl.Expr {
	return nftnl.CTOriginal(pick(f.Family, nftnl.CTDstIP, nftnl.CTDstIP6), into)
}

// loadProto loads the protocol.
func loadProto(into nftnl.Reg) nftnl.Expr { return nftnl.Meta(nftnl.MetaL4Proto, into) }

// loadPort loads the destination's port.
func loadPort(into nftnl.Reg) nftnl.Expr { return nftnl.Payload(nftnl.Transport, 2, 2, into) }

// loadOrigPort loads that port, as it was before it was translated.
func loadOrigPort(into nftnl.Reg) nftnl.Expr { return nftnl.CTOriginal(nftnl.CTProtoDst, into) }

// hostOrder is a number in host order, as marks and the bits of a connection have it.
func hostOrder(n uint32) string { return string(binary.NativeEndian.AppendUint32(nil, n)) }

// ifname is the whole name of an interface, as the kernel compares it.
func ifname(name string) string {
	var b [16]byte
	copy(b[:], name)
	return string(b[:])
}

// Bits of a connection's state and status.
const (
	stateInvalid = 1 << 0
	stateNew     = 1 << 3
	confirmed    = 1 << 3 // IPS_CONFIRMED, of the status: its first packet has left
	translated   = 1 << 5 // IPS_DST_NAT, of the status: its destination is translated
)

// ofState goes on with packets of connections in one of these states.
func ofState(state uint32) rule {
	return rule{nftnl.CT(nftnl.CTState, 0), nftnl.Mask(0, hostOrder(state)), nftnl.Cmp(nftnl.NotEqual, 0, hostOrder(0))}
}

// ifTranslated is a rule for packets that some rule has sent elsewhere than they were sent, and
// ifUntranslated one for all others.
func ifTranslated(v nftnl.Verdict) rule   { return ifStatus(nftnl.NotEqual, v) }
func ifUntranslated(v nftnl.Verdict) rule { return ifStatus(nftnl.Equal, v) }

func ifStatus(op nftnl.CmpOp, v nftnl.Verdict) rule {
	return rule{nftnl.CT(nftnl.CTStatus, 0), nftnl.Mask(0, hostOrder(translated)), nftnl.Cmp(op, 0, hostOrder(0)), nftnl.Do(v)}
}

// ofStatus goes on with packets of connections that have all of these bits in their status.
func ofStatus(bits uint32) rule {
	return rule{nftnl.CT(nftnl.CTStatus, 0), nftnl.Mask(0, hostOrder(bits)), nftnl.Cmp(nftnl.Equal, 0, hostOrder(bits))}
}

// fromNode goes on with packets that the node itself sends: they came in nowhere.
func fromNode() rule {
	return rule{nftnl.Meta(nftnl.MetaIif, 0), nftnl.Cmp(nftnl.Equal, 0, hostOrder(0))}
}

// within goes on if an address that load puts into register 0 is in a range.
func within(load nftnl.Expr, in netip.Prefix) rule {
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
