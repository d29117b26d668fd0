// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// decides reports whether an expression may decide the fate of a packet. Unknown expressions may. A rule
// without such an expression, for example one that only counts or logs, is skipped.
func decides(e nftnl.Expr) bool {
	switch e.Name() {
	case "cmp", "range", "bitwise", "byteorder", "limit", "quota", "counter", "log", "last", "dynset", "fib", "rt", "socket", "exthdr", "connlimit":
		return false
	case "meta":
		key := nftnl.MetaKey(e.Num(2))
		return e.Has(3) && (key == nftnl.MetaMark || key == nftnl.MetaPriority) // it sets what a rule may look at
	case "payload":
		return e.Has(5)
	case "ct":
		return e.Has(4)
	case "lookup":
		return e.Has(3) // a map may have verdicts
	}
	return true
}

// compile returns an expression as a function. The numbers of attributes and values are those of
// linux/netfilter/nf_tables.h.
func (t *TableRules) compile(e nftnl.Expr) step {
	switch e.Name() {
	case "meta":
		return meta(e)
	case "payload":
		from, offset, n := nftnl.Header(e.Num(2)), e.Num(3), e.Num(4)
		return load(e, 1, func(w *way) ([]byte, error) { return w.payload(from, offset, n) })
	case "ct":
		key, direction := e.Num(2), e.Num(3)
		return load(e, 1, func(w *way) ([]byte, error) { return w.connection(key, direction) })
	case "fib":
		result, flags := e.Num(2), e.Num(3)
		return load(e, 1, func(w *way) ([]byte, error) { return w.fib(result, flags) })
	case "immediate":
		if _, data := e.Reg(1); !data {
			v := e.Verdict(2)
			return func(*way) (bool, *nftnl.Verdict, error) { return true, &v, nil }
		}
		constant := e.Value(2)
		return load(e, 1, func(*way) ([]byte, error) { return constant, nil })
	case "cmp":
		return compare(e)
	case "range":
		return within(e)
	case "bitwise":
		return bitwise(e)
	case "numgen":
		return numgen(e)
	case "lookup":
		return t.lookup(e)
	case "nat":
		return dnat(e)
	case "masq":
		return func(w *way) (bool, *nftnl.Verdict, error) { w.path.Masquerade = true; return true, &nftnl.Accept, nil }
	case "reject":
		return func(w *way) (bool, *nftnl.Verdict, error) { w.path.Verdict = Reject; return true, &nftnl.Drop, nil }
	case "counter", "log", "dynset": // these do not change the path of the packet
		return func(*way) (bool, *nftnl.Verdict, error) { return true, nil, nil }
	}
	return unknown("the expression %s", e.Name())
}

// load returns a step that stores the value of fact in the register of an attribute.
func load(e nftnl.Expr, kind uint16, fact func(*way) ([]byte, error)) step {
	into, ok := e.Reg(kind)
	if !ok {
		return unknown("%s without a register to load into", e.Name())
	}
	return func(w *way) (bool, *nftnl.Verdict, error) {
		value, err := fact(w)
		w.regs.load(into, value)
		return err == nil, nil, err
	}
}

// meta returns a step that loads or sets a property of the packet.
func meta(e nftnl.Expr) step {
	key := nftnl.MetaKey(e.Num(2))
	from, sets := e.Reg(3)
	if !sets {
		return load(e, 1, func(w *way) ([]byte, error) { return w.fact(key) })
	}
	return func(w *way) (bool, *nftnl.Verdict, error) {
		into := map[nftnl.MetaKey]*uint32{nftnl.MetaMark: &w.path.Mark, nftnl.MetaPriority: &w.priority}[key]
		if into == nil {
			return true, nil, nil // this does not change the path of the packet
		}
		value, err := w.regs.value(from, 4)
		if err == nil {
			*into = binary.NativeEndian.Uint32(value)
		}
		return err == nil, nil, err
	}
}

// ordered has a function for each comparison, NFT_CMP_* of cmp, that reports whether it holds for a result of
// bytes.Compare.
var ordered = []func(int) bool{
	func(c int) bool { return c == 0 }, func(c int) bool { return c != 0 },
	func(c int) bool { return c < 0 }, func(c int) bool { return c <= 0 },
	func(c int) bool { return c > 0 }, func(c int) bool { return c >= 0 },
}

func compare(e nftnl.Expr) step {
	op, with := e.Num(2), e.Value(3)
	reg, ok := e.Reg(1)
	if !ok || op >= uint64(len(ordered)) {
		return unknown("the comparison %d", op)
	}
	return func(w *way) (bool, *nftnl.Verdict, error) {
		value, err := w.regs.value(reg, len(with))
		return ordered[op](bytes.Compare(value, with)), nil, err
	}
}

// within returns a step that compares with a range.
func within(e nftnl.Expr) step {
	outside, from, to := e.Num(2) == 1, e.Value(3), e.Value(4)
	reg, ok := e.Reg(1)
	if !ok || len(from) != len(to) {
		return unknown("a range without ends")
	}
	return func(w *way) (bool, *nftnl.Verdict, error) {
		value, err := w.regs.value(reg, len(from))
		in := bytes.Compare(from, value) <= 0 && bytes.Compare(value, to) <= 0
		return in != outside, nil, err
	}
}

func bitwise(e nftnl.Expr) step {
	from, ok := e.Reg(1)
	mask, xor := e.Value(4), e.Value(5)
	if !ok || e.Num(6) != 0 || len(mask) != len(xor) {
		return unknown("bitwise other than by a mask")
	}
	return load(e, 2, func(w *way) ([]byte, error) {
		value, err := w.regs.value(from, len(mask))
		value = bytes.Clone(value)
		for i := range value {
			value[i] = value[i]&mask[i] ^ xor[i]
		}
		return value, err
	})
}

func numgen(e nftnl.Expr) step {
	into, ok := e.Reg(1)
	below := uint32(e.Num(2))
	if !ok || below == 0 || e.Num(4) != 0 {
		return unknown("numgen with an offset, or without a range")
	}
	return func(w *way) (bool, *nftnl.Verdict, error) {
		w.regs.load(into, make([]byte, 4))
		w.regs.below[into] = below
		return true, nil, nil
	}
}

// dnat returns a step that translates the destination.
func dnat(e nftnl.Expr) step {
	addr, ok := e.Reg(3)
	port, moves := e.Reg(5)
	if !ok || e.Num(1) != 1 {
		return unknown("nat other than dnat to an address")
	}
	return func(w *way) (bool, *nftnl.Verdict, error) {
		to, err := w.regs.value(addr, len(w.to.Addr().AsSlice()))
		if err != nil {
			return false, nil, err
		}
		ip, _ := netip.AddrFromSlice(to)
		w.to = netip.AddrPortFrom(ip, w.to.Port())
		if moves {
			n, err := w.regs.value(port, 2)
			if err != nil {
				return false, nil, err
			}
			w.to = netip.AddrPortFrom(ip, binary.BigEndian.Uint16(n))
		}
		w.path.Translated = true
		return true, &nftnl.Accept, nil
	}
}

// lookup returns a step that looks up registers in a set or map.
func (t *TableRules) lookup(e nftnl.Expr) step {
	name, inverted := e.Text(1), e.Num(5)&1 != 0
	key, ok := e.Reg(2)
	into, loads := e.Reg(3)
	s, there := t.sets[name]
	if !ok || !there {
		return unknown("there is no set %s", name)
	}
	return func(w *way) (bool, *nftnl.Verdict, error) {
		found, in, err := t.find(w, name, s, key, inverted)
		switch {
		case err != nil || in == inverted:
			return false, nil, err
		case in && loads:
			w.regs.load(into, []byte(found.Data))
		case in && e.Has(3):
			return true, &found.Verdict, nil
		}
		return true, nil, nil
	}
}

// find returns the element whose key starts in a register. If part of the key is random, there is a path for
// each possible element and one for none.
func (t *TableRules) find(w *way, name string, s *set, at nftnl.Reg, inverted bool) (nftnl.Element, bool, error) {
	random, below := w.regs.random(at, s.width)
	if below == 0 {
		key, err := w.regs.value(at, s.width)
		found, in := s.find(string(key))
		return found, in, err
	}
	if inverted || below > mostDrawn {
		return nftnl.Element{}, false, fmt.Errorf("a random number below %d in a key of set %s", below, name)
	}
	key := string(w.regs.words[4*at:][:s.width])
	d := draw{name, key, int(4 * (random - at)), below}
	hits, known := t.draws[d]
	if !known {
		hits = d.from(s)
		t.draws[d] = hits
	}
	ways, misses := len(hits), int(below)-len(hits)
	if misses > 0 {
		ways++
	}
	taken := w.choose(ways)
	if taken == len(hits) {
		w.path.Chance *= float64(misses) / float64(below)
		return nftnl.Element{}, false, nil
	}
	w.path.Chance /= float64(below)
	w.regs.load(random, word(hits[taken].number))
	return hits[taken].Element, true, nil
}

// mostDrawn is the maximum bound of a random number.
const mostDrawn = 1 << 16

// A draw is a set key that contains a random number.
type draw struct {
	set, key string
	at       int // offset in the key
	below    uint32
}

// A drawn is an element that a draw may select, with the random number.
type drawn struct {
	number uint32
	nftnl.Element
}

func (d draw) from(s *set) (all []drawn) {
	key := []byte(d.key)
	for n := range d.below {
		copy(key[d.at:], word(n))
		if e, in := s.find(string(key)); in {
			all = append(all, drawn{n, e})
		}
	}
	return all
}
