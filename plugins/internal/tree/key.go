// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// A Key identifies a frontend by the destination of its packets. A tree treats it as a sequence of digits of
// two bits: those of the address, if the tree uses addresses, one for the protocol, and those of the port.
type Key struct {
	Addr     netip.Addr
	Protocol sdk.Protocol
	Port     uint16
}

// Compare orders keys by address, protocol and port.
func (k Key) Compare(l Key) int {
	return cmp.Or(k.Addr.Compare(l.Addr), cmp.Compare(k.Protocol, l.Protocol), cmp.Compare(k.Port, l.Port))
}

// addrDigits returns the number of digits of an address.
func addrDigits(f sdk.Family) int {
	if f == sdk.IPv6 {
		return 64
	}
	return 16
}

const portDigits = 8

// digit returns the i-th digit of k, whose address has n digits.
func (k Key) digit(i, n int) byte {
	switch {
	case i < n:
		b := k.Addr.AsSlice()[i/4]
		return b >> (6 - 2*(i%4)) & 3
	case i == n:
		return byte(k.Protocol-1) & 3
	}
	return byte(k.Port>>(14-2*(i-n-1))) & 3
}

// A prefix is the first digits of a key, which all entries of a branch share.
type prefix struct {
	key    Key
	digits int // length of the prefix
	addr   int // number of digits of an address
}

// words returns the matches for packets with prefix p.
func (p prefix) words() iptables.Rule {
	words := make([]any, 0, 6)
	if n := min(p.digits, p.addr); n > 0 {
		words = append(words, "-d", netip.PrefixFrom(p.key.Addr, 2*n))
	}
	if p.key.Protocol == 0 {
		return iptables.Words(words...) // all protocols and ports
	}
	if p.digits > p.addr {
		words = append(words, "-p "+p.key.Protocol.String())
	}
	if p.digits > p.addr+1 {
		first, last := p.ports()
		ports := strconv.Itoa(first)
		if last > first {
			ports += ":" + strconv.Itoa(last)
		}
		words = append(words, "-m "+p.key.Protocol.String(), "--dport", ports)
	}
	return iptables.Words(words...)
}

// ports returns the first and last port with the prefix.
func (p prefix) ports() (first, last int) {
	free := 2 * (portDigits - (p.digits - p.addr - 1))
	first = int(p.key.Port >> free << free)
	return first, first + 1<<free - 1
}

// String returns a name that is short enough for a chain and readable where possible: "10.96.64.0/18",
// "tcp-30080-30095".
func (p prefix) String() string {
	switch {
	case p.addr > 0 && p.digits <= p.addr && p.key.Addr.Is4():
		return netip.PrefixFrom(p.key.Addr, 2*p.digits).Masked().String()
	case p.addr == 0 && p.digits == 1:
		return p.key.Protocol.String()
	case p.addr == 0 && p.digits > 1:
		first, last := p.ports()
		return fmt.Sprintf("%s-%d-%d", p.key.Protocol, first, last)
	}
	return iptables.Hash(fmt.Sprintf("%s %d", p.words(), p.digits))
}
