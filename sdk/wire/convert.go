// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"unicode/utf8"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// A conversion is that of one value's fields, in either direction. What is wrong with the
// first field that cannot be converted is its error.
type conversion struct{ err error }

// field converts one field; name is for the error.
func field[V, W any](c *conversion, name string, v V, f func(V) (W, error)) W {
	w, err := f(v)
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("%s: %w", name, err)
	}
	return w
}

// list converts each value of a field that has several; nil for none.
func list[V, W any](c *conversion, name string, values []V, f func(V) (W, error)) []W {
	if len(values) == 0 {
		return nil
	}
	out := make([]W, len(values))
	for i, v := range values {
		out[i] = field(c, name, v, f)
	}
	return out
}

// sendable reports why addr cannot travel, if so.
func sendable(addr netip.Addr) error {
	switch {
	case !addr.IsValid():
		return errors.New("no address")
	case addr.Zone() != "":
		return fmt.Errorf("address %s has a zone", addr)
	}
	return nil
}

func encodeAddr(addr netip.Addr) ([]byte, error) {
	if err := sendable(addr); err != nil {
		return nil, err
	}
	return addr.AsSlice(), nil
}

func decodeAddr(b []byte) (netip.Addr, error) {
	addr, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.Addr{}, fmt.Errorf("an address of %d bytes", len(b))
	}
	return addr, nil
}

func encodePrefix(p netip.Prefix) ([]byte, error) {
	if !p.IsValid() {
		return nil, errors.New("no range of addresses")
	}
	return append(p.Addr().AsSlice(), byte(p.Bits())), nil
}

func decodePrefix(b []byte) (netip.Prefix, error) {
	if len(b) == 0 {
		return netip.Prefix{}, errors.New("a range of no bytes")
	}
	addr, err := decodeAddr(b[:len(b)-1])
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("a range with %w", err)
	}
	p := netip.PrefixFrom(addr, int(b[len(b)-1]))
	if !p.IsValid() {
		return netip.Prefix{}, fmt.Errorf("a range of %d bits from %s", b[len(b)-1], addr)
	}
	return p, nil
}

// packAddrs puts addresses of one family end to end.
func packAddrs(addrs []netip.Addr) (*pb.Addresses, error) {
	if len(addrs) == 0 {
		return nil, nil
	}
	packed := make([]byte, 0, len(addrs)*addrs[0].BitLen()/8)
	for _, addr := range addrs {
		var err error
		if packed, err = appendAddr(packed, addr, addrs[0]); err != nil {
			return nil, err
		}
	}
	return &pb.Addresses{Count: uint32(len(addrs)), Addrs: packed}, nil
}

func unpackAddrs(p *pb.Addresses) ([]netip.Addr, error) {
	width, err := width(p.GetAddrs(), p.GetCount())
	if err != nil || width == 0 {
		return nil, err
	}
	addrs := make([]netip.Addr, p.Count)
	for i := range addrs {
		addrs[i] = addrAt(p.Addrs, i, width)
	}
	return addrs, nil
}

// packEndpoints turns a list into columns.
func packEndpoints(endpoints []sdk.Endpoint) (*pb.Endpoints, error) {
	if len(endpoints) == 0 {
		return nil, nil
	}
	first := endpoints[0].Addr
	p := &pb.Endpoints{
		Count: uint32(len(endpoints)),
		Addrs: make([]byte, 0, len(endpoints)*first.Addr().BitLen()/8),
		Ports: []uint32{uint32(first.Port())},
	}
	for i, ep := range endpoints {
		var err error
		if p.Addrs, err = appendAddr(p.Addrs, ep.Addr.Addr(), first.Addr()); err != nil {
			return nil, fmt.Errorf("endpoint %s: %w", ep, err)
		}
		if ep.OnNode {
			p.OnNode = setBit(p.OnNode, i)
		}
		if ep.Addr.Port() != first.Port() && len(p.Ports) == 1 {
			p.Ports = ports(endpoints)
		}
	}
	return p, nil
}

func unpackEndpoints(p *pb.Endpoints) ([]sdk.Endpoint, error) {
	width, err := width(p.GetAddrs(), p.GetCount())
	if err != nil || width == 0 {
		return nil, err
	}
	if n := len(p.Ports); n != 1 && n != int(p.Count) {
		return nil, fmt.Errorf("%d ports for %d endpoints", n, p.Count)
	}
	endpoints := make([]sdk.Endpoint, p.Count)
	for i := range endpoints {
		port := p.Ports[min(i, len(p.Ports)-1)]
		if port > 0xffff {
			return nil, fmt.Errorf("port %d of an endpoint", port)
		}
		endpoints[i] = sdk.Endpoint{
			Addr:   netip.AddrPortFrom(addrAt(p.Addrs, i, width), uint16(port)),
			OnNode: bit(p.OnNode, i),
		}
	}
	return endpoints, nil
}

func ports(endpoints []sdk.Endpoint) []uint32 {
	ports := make([]uint32, len(endpoints))
	for i, ep := range endpoints {
		ports[i] = uint32(ep.Addr.Port())
	}
	return ports
}

// appendAddr adds addr, which must be of first's family.
func appendAddr(packed []byte, addr, first netip.Addr) ([]byte, error) {
	if err := sendable(addr); err != nil {
		return nil, err
	}
	if addr.BitLen() != first.BitLen() {
		return nil, fmt.Errorf("%s and %s are of two families", first, addr)
	}
	return addr.AppendBinary(packed)
}

// width returns how many bytes each of count addresses has; zero: there are none.
func width(packed []byte, count uint32) (int, error) {
	switch uint64(len(packed)) {
	case 0:
		if count == 0 {
			return 0, nil
		}
	case 4 * uint64(count):
		return 4, nil
	case 16 * uint64(count):
		return 16, nil
	}
	return 0, fmt.Errorf("%d addresses in %d bytes", count, len(packed))
}

func addrAt(packed []byte, i, width int) netip.Addr {
	addr, _ := netip.AddrFromSlice(packed[width*i : width*(i+1)])
	return addr
}

func setBit(bits []byte, i int) []byte {
	for len(bits) <= i/8 {
		bits = append(bits, 0)
	}
	bits[i/8] |= 1 << (i % 8)
	return bits
}

func bit(bits []byte, i int) bool {
	return i/8 < len(bits) && bits[i/8]&(1<<(i%8)) != 0
}

// enum brings a number from the wire into the vocabulary. One that does not fit
// becomes the largest, which nothing knows.
func enum(v int32) uint8 {
	if v < 0 || v > 0xff {
		return 0xff
	}
	return uint8(v)
}

// utf8All reports whether all of these can travel as protobuf strings.
func utf8All(values ...string) bool {
	return !slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) })
}
