// SPDX-License-Identifier: Apache-2.0

package nftnl

import "time"

// Flags of a set: NFT_SET_*.
const (
	Interval = 1 << 2
	isMap    = 1 << 3
	timeouts = 1 << 4
	Dynamic  = 1 << 5 // rules may add elements (NFT_SET_EVAL)
	isConcat = 1 << 7
)

// A Field is one part of a key, or of the data of a map: its length, and the type by which nft lists it (enum
// datatypes of nft).
type Field struct {
	Type uint32
	Len  int
}

// The fields.
var (
	Addr4    = Field{7, 4}
	Addr6    = Field{8, 16}
	Proto    = Field{12, 1}
	Port     = Field{13, 2}
	Mark     = Field{19, 4}
	Priority = Field{23, 4} // in host order
)

// A Set is a set, or with Data a map.
type Set struct {
	Name      string
	Flags     uint32
	Key, Data []Field
	Timeout   time.Duration // default timeout of elements
	Size      uint32        // maximum number of elements; zero: the kernel's limit
}

// together returns the combined type and length of fields: 6 bits per type, and whole words.
func together(fields []Field) (kind uint32, length int) {
	for _, f := range fields {
		kind = kind<<6 | f.Type
		length += (f.Len + 3) &^ 3
	}
	if len(fields) == 1 {
		length = fields[0].Len
	}
	return kind, length
}

// flags returns Flags and the flags that follow from other properties of the set.
func (s Set) flags() uint32 {
	flags := s.Flags
	for flag, set := range map[uint32]bool{
		isMap:    s.Data != nil,
		isConcat: len(s.Key) > 1 && flags&Interval != 0,
		timeouts: s.Timeout > 0,
	} {
		if set {
			flags |= flag
		}
	}
	return flags
}

// Shape returns the properties that cannot be changed after the set is created.
func (s Set) Shape() string {
	key, _ := together(s.Key)
	data, _ := together(s.Data)
	return Observed{Flags: s.flags(), key: key, data: data, Timeout: s.Timeout}.Shape()
}

// hostOrder returns user data that tells nft that keys (0) or data (1) of one field are in host order:
// NFTNL_UDATA_SET_*, a length, BYTEORDER_HOST_ENDIAN. For several fields nft uses their types.
func hostOrder(of byte, fields []Field) string {
	if len(fields) != 1 || fields[0] != Priority {
		return ""
	}
	return string(native.AppendUint32([]byte{of, 4}, 1))
}

// An Element is an element of a set. Key and data have the form of registers.
type Element struct {
	Key     string
	KeyEnd  string        // for a range: each field is between Key and KeyEnd; empty: not a range
	End     bool          // in a set of ranges with one field: a range ends before Key; only read
	Data    string        // of a map
	Verdict Verdict       // of a map of verdicts; only read
	Comment string        // the comment that nft shows, at most 253 bytes
	Left    time.Duration // remaining time, if shorter than the timeout of the set; zero: that timeout
}

// element encodes e in a list: NFTA_LIST_ELEM of NFTA_SET_ELEM_LIST_ELEMENTS.
func (a *attrs) element(e Element) {
	at := a.begin(1 | isNested)
	a.value(1, e.Key) // NFTA_SET_ELEM_KEY
	if e.Data != "" {
		a.value(2, e.Data) // NFTA_SET_ELEM_DATA
	}
	if e.Left > 0 {
		a.u64(5, uint64(e.Left.Milliseconds())) // NFTA_SET_ELEM_EXPIRATION
	}
	if e.Comment != "" {
		a.put(6, string([]byte{0, byte(len(e.Comment) + 1)})+e.Comment+"\x00") // NFTA_SET_ELEM_USERDATA
	}
	if e.KeyEnd != "" {
		a.value(10, e.KeyEnd) // NFTA_SET_ELEM_KEY_END
	}
	a.end(at)
}
