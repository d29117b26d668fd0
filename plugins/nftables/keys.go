// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
)

// This file encodes and decodes keys and data as registers hold them: each field is padded to whole 4-byte
// words.

// protocolNumbers are the IP protocol numbers.
var protocolNumbers = map[sdk.Protocol]string{sdk.TCP: "\x06", sdk.UDP: "\x11", sdk.SCTP: "\x84"}

// frontendKey returns the key of an address (left out if it is unspecified), a protocol and a port.
func frontendKey(proto sdk.Protocol, addr netip.AddrPort) string {
	var room [longestKey]byte // one allocation for each string: there are hundreds of thousands
	k := room[:0]
	if !addr.Addr().IsUnspecified() {
		k = appendAddr(k, addr.Addr())
	}
	k = append(append(k, protocolNumbers[proto]...), 0, 0, 0)
	return string(appendPort(k, addr.Port()))
}

// longestKey is the length of the key of an IPv6 endpoint's slot: address, protocol, port, slot.
const longestKey = 16 + 3*4

// KeyLen returns the length of a frontendKey with or without an address.
func (f ip) KeyLen(addr bool) int {
	if addr {
		return f.Addr().Len + 8
	}
	return 8
}

// ReadKey is the inverse of frontendKey.
func (f ip) ReadKey(k string, addr bool) (proto sdk.Protocol, at netip.AddrPort, ok bool) {
	if len(k) != f.KeyLen(addr) {
		return 0, at, false
	}
	ip := byFamily(f.Family, netip.IPv4Unspecified(), netip.IPv6Unspecified())
	if addr {
		ip, _ = netip.AddrFromSlice([]byte(k[:f.Addr().Len]))
		k = k[f.Addr().Len:]
	}
	for of, number := range protocolNumbers {
		if k[:1] == number {
			proto = of
		}
	}
	return proto, netip.AddrPortFrom(ip, binary.BigEndian.Uint16([]byte(k[4:]))), proto != 0
}

// addrKey returns the key of an address.
func addrKey(a netip.Addr) string {
	var room [16]byte
	return string(appendAddr(room[:0], a))
}

// destination returns the data of an endpoint, for DNAT.
func destination(to netip.AddrPort) string {
	var room [longestKey]byte
	return string(appendPort(appendAddr(room[:0], to.Addr()), to.Port()))
}

// ReadDestination is the inverse of destination.
func (f ip) ReadDestination(data string) netip.AddrPort {
	n := f.Addr().Len
	if len(data) < n+2 {
		return netip.AddrPort{}
	}
	addr, _ := netip.AddrFromSlice([]byte(data[:n]))
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16([]byte(data[n:])))
}

// slotKey returns key with a slot number appended.
func slotKey(key string, i int) string {
	var room [longestKey]byte
	return string(binary.NativeEndian.AppendUint32(append(room[:0], key...), uint32(i)))
}

func appendAddr(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		four := a.As4()
		return append(b, four[:]...)
	}
	all := a.As16()
	return append(b, all[:]...)
}

func appendPort(b []byte, port uint16) []byte {
	return append(binary.BigEndian.AppendUint16(b, port), 0, 0)
}
