// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"encoding/binary"
	"net/netip"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// This file has what rules load of packets and compare it with.

// An IP is an IP family: where its headers have what, in registers of 4 bytes.
type IP struct{ sdk.Family }

// Pick is the value for a family.
func Pick[T any](f sdk.Family, four, six T) T {
	if f == sdk.IPv6 {
		return six
	}
	return four
}

// NFT is the family as nf_tables has it.
func (f IP) NFT() nftnl.Family { return Pick(f.Family, nftnl.IPv4, nftnl.IPv6) }

// Words are how many registers an address takes.
func (f IP) Words() nftnl.Reg { return Pick[nftnl.Reg](f.Family, 1, 4) }

// Addr is an address in a key.
func (f IP) Addr() nftnl.Field { return Pick(f.Family, nftnl.Addr4, nftnl.Addr6) }

// Saddr loads the source.
func (f IP) Saddr(into nftnl.Reg) nftnl.Expr {
	return nftnl.Payload(nftnl.Network, Pick[uint32](f.Family, 12, 8), uint32(f.Addr().Len), into)
}

// Daddr loads the destination.
func (f IP) Daddr(into nftnl.Reg) nftnl.Expr {
	return nftnl.Payload(nftnl.Network, Pick[uint32](f.Family, 16, 24), uint32(f.Addr().Len), into)
}

// OrigDaddr loads the destination, as it was before it was translated.
func (f IP) OrigDaddr(into nftnl.Reg) nftnl.Expr {
	return nftnl.CTOriginal(Pick(f.Family, nftnl.CTDstIP, nftnl.CTDstIP6), into)
}

// Proto loads the protocol.
func Proto(into nftnl.Reg) nftnl.Expr { return nftnl.Meta(nftnl.MetaL4Proto, into) }

// Dport loads the destination's port.
func Dport(into nftnl.Reg) nftnl.Expr { return nftnl.Payload(nftnl.Transport, 2, 2, into) }

// OrigPort loads that port, as it was before it was translated.
func OrigPort(into nftnl.Reg) nftnl.Expr { return nftnl.CTOriginal(nftnl.CTProtoDst, into) }

// Mark is a number in host order, as marks and the bits of a connection have it.
func Mark(n uint32) string { return string(binary.NativeEndian.AppendUint32(nil, n)) }

// Ifname is the whole name of an interface, as the kernel compares it.
func Ifname(name string) string {
	var b [16]byte
	copy(b[:], name)
	return string(b[:])
}

// Bits of a connection's state and status.
const (
	StateInvalid = 1 << 0
	StateNew     = 1 << 3
	Confirmed    = 1 << 3 // IPS_CONFIRMED, of the status: its first packet has left
	Translated   = 1 << 5 // IPS_DST_NAT, of the status: its destination is translated
)

// OfState goes on with packets of connections in one of these states.
func OfState(state uint32) Rule {
	return Rule{nftnl.CT(nftnl.CTState, 0), nftnl.Mask(0, Mark(state)), nftnl.Cmp(nftnl.NotEqual, 0, Mark(0))}
}

// IfTranslated is a rule for packets that some rule has sent elsewhere than they were sent, and
// IfUntranslated one for all others.
func IfTranslated(v nftnl.Verdict) Rule   { return ifStatus(nftnl.NotEqual, v) }
func IfUntranslated(v nftnl.Verdict) Rule { return ifStatus(nftnl.Equal, v) }

func ifStatus(op nftnl.CmpOp, v nftnl.Verdict) Rule {
	return Rule{nftnl.CT(nftnl.CTStatus, 0), nftnl.Mask(0, Mark(Translated)), nftnl.Cmp(op, 0, Mark(0)), nftnl.Do(v)}
}

// OfStatus goes on with packets of connections that have all of these bits in their status.
func OfStatus(bits uint32) Rule {
	return Rule{nftnl.CT(nftnl.CTStatus, 0), nftnl.Mask(0, Mark(bits)), nftnl.Cmp(nftnl.Equal, 0, Mark(bits))}
}

// FromNode goes on with packets that the node itself sends: they came in nowhere.
func FromNode() Rule {
	return Rule{nftnl.Meta(nftnl.MetaIif, 0), nftnl.Cmp(nftnl.Equal, 0, Mark(0))}
}

// Within goes on if an address that load puts into register 0 is in a range.
func Within(load nftnl.Expr, in netip.Prefix) Rule {
	if in.Bits() == 0 {
		return nil
	}
	bits := make([]byte, in.Addr().BitLen()/8)
	for i := range in.Bits() {
		bits[i/8] |= 0x80 >> (i % 8)
	}
	r := Rule{load}
	if in.Bits() < in.Addr().BitLen() {
		r = append(r, nftnl.Mask(0, string(bits)))
	}
	return append(r, nftnl.Cmp(nftnl.Equal, 0, string(in.Masked().Addr().AsSlice())))
}
