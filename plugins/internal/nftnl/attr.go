// SPDX-License-Identifier: Apache-2.0

package nftnl

import "encoding/binary"

// native is the order of numbers in headers.
var native = binary.NativeEndian

const (
	attrHeader = 4       // of struct nlattr: its length, with the header, and its kind
	isNested   = 1 << 15 // NLA_F_NESTED
	kindMask   = 1<<14 - 1
)

// attrs are netlink attributes one behind the other, as they are written.
type attrs []byte

// begin opens an attribute, and says where it begins.
func (a *attrs) begin(kind uint16) int {
	at := len(*a)
	*a = native.AppendUint16(append(*a, 0, 0), kind)
	return at
}

// end closes the attribute that begins at.
func (a *attrs) end(at int) {
	native.PutUint16((*a)[at:], uint16(len(*a)-at))
	for len(*a)%4 != 0 {
		*a = append(*a, 0)
	}
}

func (a *attrs) put(kind uint16, value string) {
	at := a.begin(kind)
	*a = append(*a, value...)
	a.end(at)
}

// value is NFTA_DATA_VALUE in an attribute of kind.
func (a *attrs) value(kind uint16, v string) {
	at := a.begin(kind | isNested)
	a.put(1, v)
	a.end(at)
}

func (a *attrs) u64(kind uint16, n uint64) {
	at := a.begin(kind)
	*a = binary.BigEndian.AppendUint64(*a, n)
	a.end(at)
}

// The same, each by itself: of these the messages that are seldom sent are made.

func one(write func(*attrs)) string {
	var a attrs
	write(&a)
	return string(a)
}

func text(kind uint16, s string) string  { return one(func(a *attrs) { a.put(kind, s+"\x00") }) }
func value(kind uint16, v string) string { return one(func(a *attrs) { a.value(kind, v) }) }
func num64(kind uint16, n uint64) string { return one(func(a *attrs) { a.u64(kind, n) }) }
func num8(kind uint16, n uint8) string   { return one(func(a *attrs) { a.put(kind, string([]byte{n})) }) }
func num(kind uint16, n uint32) string {
	return one(func(a *attrs) { a.put(kind, string(binary.BigEndian.AppendUint32(nil, n))) })
}

func nest(kind uint16, parts ...string) string {
	return one(func(a *attrs) {
		at := a.begin(kind | isNested)
		for _, p := range parts {
			*a = append(*a, p...)
		}
		a.end(at)
	})
}

// eachAttr calls f for each attribute in b, until there is none that is whole.
func eachAttr(b []byte, f func(kind uint16, value []byte)) {
	for len(b) >= attrHeader {
		n := int(native.Uint16(b))
		if n < attrHeader || n > len(b) {
			return
		}
		f(native.Uint16(b[2:])&kindMask, b[attrHeader:n])
		b = b[min(len(b), (n+3)&^3):]
	}
}

// attr is the attribute to which kinds lead, each in the one before; nil: there is none.
func attr(b []byte, kinds ...uint16) []byte {
	for _, kind := range kinds {
		var found []byte
		eachAttr(b, func(k uint16, v []byte) {
			if k == kind {
				found = v
			}
		})
		b = found
	}
	return b
}

// getText is the string in v, which may end with a zero byte.
func getText(v []byte) string {
	if n := len(v); n > 0 && v[n-1] == 0 {
		v = v[:n-1]
	}
	return string(v)
}

// getUint is the number in v; of what is too long for one, its end.
func getUint(v []byte) (n uint64) {
	for _, b := range v {
		n = n<<8 | uint64(b)
	}
	return n
}
