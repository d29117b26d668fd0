// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"encoding/binary"
	"slices"
	"sort"
)

// A Family is an address family: NFPROTO_*.
type Family uint8

// The families.
const (
	Inet   Family = 1 // IPv4 and IPv6
	NetDev Family = 5 // hooks of single interfaces, before all others
	Bridge Family = 7
	IPv4   Family = 2
	IPv6   Family = 10
)

// Message types NFT_MSG_* of the subsystem and those around a batch, and message flags NLM_F_*.
const (
	subsystem = 10 // NFNL_SUBSYS_NFTABLES

	newTable, getTable, delTable = subsystem << 8, subsystem<<8 | 1, subsystem<<8 | 2
	newChain, getChain, delChain = subsystem<<8 | 3, subsystem<<8 | 4, subsystem<<8 | 5
	newRule, getRule, delRule    = subsystem<<8 | 6, subsystem<<8 | 7, subsystem<<8 | 8
	newSet, getSet, delSet       = subsystem<<8 | 9, subsystem<<8 | 10, subsystem<<8 | 11
	newElem, getElem, delElem    = subsystem<<8 | 12, subsystem<<8 | 13, subsystem<<8 | 14
	getGen                       = subsystem<<8 | 16
	trace                        = subsystem<<8 | 17
	batchBegin, batchEnd         = 16, 17

	request, ack, dump, exclusive, create, appendTo = 1, 4, 0x300, 0x200, 0x400, 0x800

	headers = 16 + 4 // struct nlmsghdr, struct nfgenmsg
)

// message appends a message to out. For a message around a batch, it writes the subsystem of the batch.
func message(out *attrs, kind, flags uint16, family Family, parts ...string) {
	at := len(*out)
	h := [headers]byte{16: byte(family)}
	if kind == batchBegin || kind == batchEnd {
		binary.BigEndian.PutUint16(h[18:], subsystem)
	}
	native.PutUint16(h[4:], kind)
	native.PutUint16(h[6:], flags|request)
	*out = append(*out, h[:]...)
	for _, p := range parts {
		*out = append(*out, p...)
	}
	native.PutUint32((*out)[at:], uint32(len(*out)-at))
}

// A Batch is a transaction on one table: the kernel makes all of it or nothing. Each call adds an operation. A
// Fault refers to operations by number, from 0.
type Batch struct {
	family Family
	table  string

	out      attrs
	messages []int // offset of each message
	ops      []int // offset of each operation: a message, or an element in one

	open struct { // the message to which elements can still be added
		kind     uint16 // zero: there is none
		set      string
		from, at int // offsets of the message and of NFTA_SET_ELEM_LIST_ELEMENTS in it
	}
}

// NewBatch returns an empty transaction on a table.
func NewBatch(family Family, table string) *Batch {
	b := &Batch{family: family, table: table}
	b.add(batchBegin, 0)
	b.ops = nil
	return b
}

// Len returns the number of operations.
func (b *Batch) Len() int { return len(b.ops) }

// Grow allocates memory for more elements.
func (b *Batch) Grow(elements int) {
	b.out, b.ops = slices.Grow(b.out, elements*usual), slices.Grow(b.ops, elements)
}

// usual is a low estimate of the bytes that an element takes in a batch.
const usual = 64

// add adds an operation with a message of its own.
func (b *Batch) add(kind, flags uint16, parts ...string) {
	b.open.kind = 0
	b.ops = append(b.ops, len(b.out))
	b.messages = append(b.messages, len(b.out))
	message(&b.out, kind, flags, b.family, parts...)
}

// Flags of a table: NFT_TABLE_F_*. Persist needs Linux 6.9.
const (
	Owner   = 1 << 1 // only the Conn that created the table may write to it; the table is deleted when the Conn is closed,
	Persist = 1 << 2 // unless it is Persist: then it stays without owner until another Conn sends NewTable
)

// NewTable creates the table, or takes the ownership of an existing one.
func (b *Batch) NewTable(flags uint32) { b.add(newTable, create, text(1, b.table), num(2, flags)) }

// DeleteTable deletes the table with its content.
func (b *Batch) DeleteTable() { b.add(delTable, 0, text(1, b.table)) }

// A Hook says where packets enter a base chain.
type Hook struct {
	Type     string // filter or nat
	At       uint32
	Priority int32
}

// Hook numbers: NF_INET_*.
const (
	PreRouting  = 0
	Input       = 1
	Forward     = 2
	Output      = 3
	PostRouting = 4
)

// NewChain creates a chain. With a hook it is a base chain with policy accept.
func (b *Batch) NewChain(name string, hook *Hook) {
	parts := []string{text(1, b.table), text(3, name)} // NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME
	if hook != nil {
		parts = append(parts, nest(4, num(1, hook.At), num(2, uint32(hook.Priority))), // NFTA_CHAIN_HOOK
			num(5, 1), text(7, hook.Type)) // NFTA_CHAIN_POLICY: NF_ACCEPT; NFTA_CHAIN_TYPE
	}
	b.add(newChain, create, parts...)
}

// DeleteChain deletes a chain and its rules. No rule may lead to it.
func (b *Batch) DeleteChain(name string) { b.add(delChain, 0, text(1, b.table), text(3, name)) }

// FlushChain deletes the rules of a chain.
func (b *Batch) FlushChain(name string) { b.add(delRule, 0, text(1, b.table), text(2, name)) }

// NewRule adds a rule at the end of a chain.
func (b *Batch) NewRule(chain string, exprs ...Expr) {
	var all []string
	for _, e := range exprs {
		all = append(all, nest(1, text(1, e.name), e.data)) // NFTA_LIST_ELEM
	}
	b.add(newRule, create|appendTo, text(1, b.table), text(2, chain), nest(4, all...)) // NFTA_RULE_EXPRESSIONS
}

// NewSet creates a set.
func (b *Batch) NewSet(s Set) {
	key, keyLen := together(s.Key)
	data, dataLen := together(s.Data)
	parts := []string{text(1, b.table), text(2, s.Name), num(3, s.flags()), // NFTA_SET_FLAGS
		num(4, key), num(5, uint32(keyLen)), // NFTA_SET_KEY_TYPE, NFTA_SET_KEY_LEN
		num(10, uint32(len(b.ops)))} // NFTA_SET_ID, which is mandatory
	if s.Data != nil {
		parts = append(parts, num(6, data), num(7, uint32(dataLen))) // NFTA_SET_DATA_TYPE, NFTA_SET_DATA_LEN
	}
	if s.Timeout > 0 {
		parts = append(parts, num64(11, uint64(s.Timeout.Milliseconds()))) // NFTA_SET_TIMEOUT
	}
	if order := hostOrder(0, s.Key) + hostOrder(1, s.Data); order != "" {
		parts = append(parts, one(func(a *attrs) { a.put(13, order) })) // NFTA_SET_USERDATA
	}
	if s.Size > 0 {
		parts = append(parts, nest(9, num(1, s.Size))) // NFTA_SET_DESC, NFTA_SET_DESC_SIZE
	}
	if s.flags()&isConcat != 0 {
		var lengths []string
		for _, f := range s.Key {
			lengths = append(lengths, nest(1, num(1, uint32(f.Len)))) // NFTA_SET_FIELD_LEN
		}
		parts = append(parts, nest(9, nest(2, lengths...))) // NFTA_SET_DESC, NFTA_SET_DESC_CONCAT
	}
	b.add(newSet, create, parts...)
}

// DeleteSet deletes a set that no rule uses.
func (b *Batch) DeleteSet(name string) { b.add(delSet, 0, text(1, b.table), text(2, name)) }

// Add adds an element to a set. It is no fault if the set has the element with the same data.
func (b *Batch) Add(set string, e Element) { b.element(newElem, create, set, e) }

// Remove deletes an element by its Key and KeyEnd. The element must exist.
func (b *Batch) Remove(set string, e Element) {
	b.element(delElem, 0, set, Element{Key: e.Key, KeyEnd: e.KeyEnd})
}

// longestList is the maximum length of an element list. The length of an attribute has 16 bits, and one more
// element must fit.
const longestList = 1<<16 - 1024

// element adds an operation on an element, to the previous message if possible.
func (b *Batch) element(kind, flags uint16, set string, e Element) {
	o := &b.open
	if o.kind != kind || o.set != set || len(b.out)-o.at > longestList {
		b.add(kind, flags, text(1, b.table), text(2, set))
		b.ops = b.ops[:len(b.ops)-1]
		o.kind, o.set, o.from, o.at = kind, set, b.messages[len(b.messages)-1], b.out.begin(3|isNested)
	}
	b.ops = append(b.ops, len(b.out))
	b.out.element(e)
	b.out.end(o.at)
	native.PutUint32(b.out[o.from:], uint32(len(b.out)-o.from))
}

// bytes returns the batch as it is sent, with sequence numbers from seq. It may be called once. The kernel
// acknowledges the last operation after the whole batch.
func (b *Batch) bytes(seq uint32) []byte {
	b.out[b.messages[len(b.messages)-1]+6] |= ack
	b.add(batchEnd, 0)
	for i, at := range b.messages {
		native.PutUint32(b.out[at+8:], seq+uint32(i))
	}
	return b.out
}

// operations returns the range of operations to which a fault belongs: all of message i, or the one at an
// offset in it. If it belongs to none, that is the whole batch.
func (b *Batch) operations(i, offset int) (first, last int) {
	if i <= 0 || i >= len(b.messages)-1 {
		return 0, len(b.ops) - 2
	}
	from, to := b.messages[i], b.messages[i+1]
	first, last = sort.SearchInts(b.ops, from), sort.SearchInts(b.ops, to)-1
	if op := sort.SearchInts(b.ops, from+offset+1) - 1; offset > 0 && op >= first {
		return op, op
	}
	return first, last
}
