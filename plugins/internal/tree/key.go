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

// A Key is what packets of one frontend are known by: where they are sent. A tree
// sees it as a row of digits of two bits: those of the address, if the tree knows
// addresses, then one for the protocol, then those of the port.
type Key struct {
	Addr     netip.Addr
	Protocol sdk.Protocol
	Port     uint16
}

// Compare orders keys by address, protocol and port.
func (k Key) Compare(l Key) int {
	return cmp.Or(k.Addr.Compare(l.Addr), cmp.Compare(k.Protocol, l.Protocol), cmp.Compare(k.Port, l.Port))
}

// addrDigits is how many digits an address of family has.
func addrDigits(f sdk.Family) int {
	if f == sdk.IPv6 {
		return 64
	}
	return 16
}

const portDigits = 8

// digit is the i-th digit of k, whose address has n of them.
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

// A prefix is the first digits of a key: those that a whole branch of a tree has
// in common.
type prefix struct {
	key    Key
	digits int // how many count
	addr   int // how many of all digits are the address's
}

// words are the conditions of rules that lead to what has prefix p.
func (p prefix) words() iptables.Rule {
	words := make([]any, 0, 6)
	if n := min(p.digits, p.addr); n > 0 {
		words = append(words, "-d", netip.PrefixFrom(p.key.Addr, 2*n))
	}
	if p.key.Protocol == 0 {
		return iptables.Words(words...) // every protocol and port
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

// ports are the first and the last port that have the prefix.
func (p prefix) ports() (first, last int) {
	free := 2 * (portDigits - (p.digits - p.addr - 1))
	first = int(p.key.Port >> free << free)
	return first, first + 1<<free - 1
}

// String is short enough for a chain's name, and says as much as there is room
// for: "10.96.64.0/18", "tcp-30080-30095".
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
