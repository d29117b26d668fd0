// SPDX-License-Identifier: Apache-2.0

package nftnl

import "encoding/binary"

// native is the byte order of headers.
var native = binary.NativeEndian

const (
	attrHeader = 4       // size of struct nlattr: length (with the header) and kind
	isNested   = 1 << 15 // NLA_F_NESTED
	kindMask   = 1<<14 - 1
)

// attrs is a sequence of encoded netlink attributes.
type attrs []byte

// begin starts an attribute and returns its offset.
func (a *attrs) begin(kind uint16) int {
	at := len(*a)
	*a = native.AppendUint16(append(*a, 0, 0), kind)
	return at
}

// end ends the attribute at an offset.
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

// value adds an attribute that contains an NFTA_DATA_VALUE.
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

// The functions below return single attributes, for messages that are sent rarely.

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

// eachAttr calls f for each complete attribute in b.
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

// attr returns the attribute at a path of nested kinds, or nil.
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

// getText returns the string in v without a trailing zero byte.
func getText(v []byte) string {
	if n := len(v); n > 0 && v[n-1] == 0 {
		v = v[:n-1]
	}
	return string(v)
}

// getUint returns the big-endian number in v. Of more than 8 bytes it uses the last ones.
func getUint(v []byte) (n uint64) {
	for _, b := range v {
		n = n<<8 | uint64(b)
	}
	return n
}
