// SPDX-License-Identifier: Apache-2.0

package nftnl

import "time"

// Flags of a set: NFT_SET_*.
const (
	Interval = 1 << 2
	isMap    = 1 << 3
	timeouts = 1 << 4
	Dynamic  = 1 << 5 // rules may add to it (NFT_SET_EVAL)
	isConcat = 1 << 7
)

// A Field is one part of a key or of the data of a map: how long it is, and what nft takes it
// for when it lists it (enum datatypes of nft).
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
	Timeout   time.Duration // of each element
	Size      uint32        // how many elements there may be; zero: as many as the kernel takes
}

// together are the type and the length of several fields: 6 bits of type each, whole words.
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

// flags are those of the set, with those that follow from the rest.
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

// Shape returns what cannot be changed once the set is made.
func (s Set) Shape() string {
	key, _ := together(s.Key)
	data, _ := together(s.Data)
	return Observed{Flags: s.flags(), key: key, data: data, Timeout: s.Timeout}.Shape()
}

// hostOrder tells nft that keys (0) or data (1) of one field are in host order: NFTNL_UDATA_SET_*,
// a length, BYTEORDER_HOST_ENDIAN. Of several fields it goes by their types.
func hostOrder(of byte, fields []Field) string {
	if len(fields) != 1 || fields[0] != Priority {
		return ""
	}
	return string(native.AppendUint32([]byte{of, 4}, 1))
}

// An Element is one of a set. Key and data are bytes as registers have them.
type Element struct {
	Key     string
	KeyEnd  string        // of a range, whose every field goes from Key to KeyEnd; empty: it is none
	End     bool          // of a set of ranges with one field, which can only be read: ranges end before Key
	Data    string        // of a map
	Verdict Verdict       // of a map of verdicts, which can only be read
	Comment string        // as nft shows it, at most 253 bytes
	Left    time.Duration // until it goes by itself, if that is less than the set says; zero: it is not
}

// element writes e in a list: NFTA_LIST_ELEM of NFTA_SET_ELEM_LIST_ELEMENTS.
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
