// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// registers are 16 registers of 4 bytes. One of them may have a random number that is not chosen yet.
type registers struct {
	words [64]byte
	below [16]uint32 // upper bound of a random number that is not chosen yet; zero: the value is known
}

// load stores bytes in registers, and pads the last one with zeros.
func (r *registers) load(into nftnl.Reg, value []byte) {
	for n := 0; n < len(value) && int(into) < len(r.below); n += 4 {
		at := r.words[4*into : 4*into+4]
		clear(at)
		copy(at, value[n:])
		r.below[into] = 0
		into++
	}
}

// value returns n bytes that start in a register.
func (r *registers) value(from nftnl.Reg, n int) ([]byte, error) {
	if 4*int(from)+n > len(r.words) {
		return nil, fmt.Errorf("%d bytes of register %d", n, from)
	}
	if _, below := r.random(from, n); below > 0 {
		return nil, fmt.Errorf("a random number below %d that is not part of a lookup key", below)
	}
	return r.words[4*from:][:n], nil
}

// random returns the register with a random number among those of n bytes, and the bound of the number. below
// is zero if there is none.
func (r *registers) random(from nftnl.Reg, n int) (at nftnl.Reg, below uint32) {
	for at = from; int(at) < min(len(r.below), int(from)+(n+3)/4); at++ {
		if r.below[at] > 0 {
			return at, r.below[at]
		}
	}
	return 0, 0
}

// word encodes a number in host order.
func word(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// port encodes a port.
func port(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

// protocols are the IP protocol numbers.
var protocols = map[string]byte{"tcp": 6, "udp": 17, "sctp": 132}

// metaOif is the key of the output interface's index: NFT_META_OIF.
const metaOif nftnl.MetaKey = 5

// device returns the index of an interface. If it is unknown, the result is an index that no rule uses.
func (w *way) device(name string) []byte {
	switch {
	case name == "":
		return word(0)
	case w.packet.Index == nil:
		return word(^uint32(0))
	}
	return word(w.packet.Index(name))
}

// ifname encodes the name of an interface.
func ifname(name string) []byte {
	b := make([]byte, 16)
	copy(b, name)
	return b
}

// fact returns the value of a key of meta.
func (w *way) fact(key nftnl.MetaKey) ([]byte, error) {
	switch key {
	case nftnl.MetaMark:
		return word(w.path.Mark), nil
	case nftnl.MetaPriority:
		return word(w.priority), nil
	case nftnl.MetaIif:
		return w.device(w.packet.In), nil
	case nftnl.MetaIifName:
		return ifname(w.packet.In), nil
	case metaOif:
		return w.device(w.packet.Out), nil
	case nftnl.MetaOifName:
		return ifname(w.packet.Out), nil
	case nftnl.MetaNFProto:
		if w.to.Addr().Is4() {
			return []byte{byte(nftnl.IPv4)}, nil
		}
		return []byte{byte(nftnl.IPv6)}, nil
	case nftnl.MetaL4Proto:
		return []byte{w.proto}, nil
	}
	return nil, fmt.Errorf("meta %d", key)
}

// payload returns a part of the packet's headers: addresses, ports, or protocol.
func (w *way) payload(from nftnl.Header, offset, n uint64) ([]byte, error) {
	type field struct {
		at    uint64
		bytes []byte
	}
	source, dest := w.packet.From.Addr().AsSlice(), w.to.Addr().AsSlice()
	syn := field{at: 13} // TCP flags: the first packet has only SYN
	if w.proto == protocols["tcp"] {
		syn.bytes = []byte{1 << 1}
	}
	fields := []field{{9, []byte{w.proto}}, {12, append(source, dest...)}}
	switch {
	case from == nftnl.Transport && w.packet.From.Port() == 0:
		fields = []field{{2, port(w.to.Port())}, syn}
	case from == nftnl.Transport:
		fields = []field{{0, append(port(w.packet.From.Port()), port(w.to.Port())...)}, syn}
	case from == nftnl.Network && w.to.Addr().Is6():
		fields[0].at, fields[1].at = 6, 8
	case from != nftnl.Network:
		fields = nil
	}
	for _, f := range fields {
		if f.at <= offset && offset+n <= f.at+uint64(len(f.bytes)) {
			return f.bytes[offset-f.at:][:n], nil
		}
	}
	return nil, fmt.Errorf("%d bytes of header %d from %d", n, from, offset)
}

// Bits of a connection's state and status that its first packet may have.
const (
	stateInvalid = 1 << 0
	stateNew     = 1 << 3
	translated   = 1 << 5 // IPS_DST_NAT
)

// connection returns the value of a key of ct for a connection that begins with the packet.
func (w *way) connection(key, direction uint64) ([]byte, error) {
	switch k := nftnl.CTKey(key); {
	case k == nftnl.CTState && w.packet.Untracked:
		return word(stateInvalid), nil
	case k == nftnl.CTState:
		return word(stateNew), nil
	case w.packet.Untracked:
		return nil, errBreaks // the packet has not reached conntrack yet
	case k == nftnl.CTStatus && w.to != w.packet.To:
		return word(translated), nil
	case k == nftnl.CTStatus:
		return word(0), nil
	case k == nftnl.CTProtoDst && direction == 0:
		return port(w.packet.To.Port()), nil
	case (k == nftnl.CTDstIP || k == nftnl.CTDstIP6) && direction == 0:
		return w.packet.To.Addr().AsSlice(), nil
	}
	return nil, fmt.Errorf("ct %d of direction %d", key, direction)
}

// Results and flags of fib (NFT_FIB_RESULT_ADDRTYPE, NFTA_FIB_F_SADDR, NFTA_FIB_F_DADDR), and the address type
// RTN_UNICAST.
const (
	fibAddrType = 3
	fibSource   = 1 << 0
	fibDest     = 1 << 1
	unicast     = 1
)

// fib returns the type of an address.
func (w *way) fib(result, flags uint64) ([]byte, error) {
	of, known := map[uint64]netip.Addr{fibSource: w.packet.From.Addr(), fibDest: w.to.Addr()}[flags]
	switch {
	case result != fibAddrType || !known:
		return nil, fmt.Errorf("fib %d with flags %d", result, flags)
	case w.packet.Local(of):
		return word(nftnl.Local), nil
	}
	return word(unicast), nil
}
