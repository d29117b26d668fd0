// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"fmt"
	"slices"
	"strings"
)

// Exprs returns the expressions of a rule with all attributes that the kernel lists, including those that it
// adds.
func (o Observed) Exprs() (all []Expr) {
	eachAttr(o.exprs, func(_ uint16, v []byte) {
		all = append(all, Expr{getText(attr(v, 1)), nest(2, string(attr(v, 2)))})
	})
	return all
}

// written has the attributes that the constructors of this package write, by the name of the expression. The kernel adds
// others when it lists a rule.
var written = map[string][]uint16{
	"meta": {1, 2, 3}, "payload": {1, 2, 3, 4}, "ct": {1, 2, 3}, "cmp": {1, 2, 3}, "bitwise": {1, 2, 3, 4, 5},
	"lookup": {1, 2, 3, 5}, "immediate": {1, 2}, "numgen": {1, 2, 3, 4}, "nat": {1, 2, 3, 5}, "masq": {1},
	"reject": {1, 2}, "fib": {1, 2, 3}, "dynset": {1, 3, 4, 5, 6},
	"counter": nil,
}

// Canonical returns a text of a rule's expressions that is the same for the rule that was written and for the
// one that the kernel lists. An attribute that is zero counts as missing. Expressions that this package does
// not write are included with all their attributes.
func Canonical(rule []Expr) string {
	var b []byte
	for _, e := range rule {
		b = append(append(b, e.name...), '(')
		kinds, known := written[e.name]
		if !known {
			b = append(b, e.data...)
		}
		for _, kind := range kinds {
			v := strings.TrimRight(string(e.attr(kind)), "\x00")
			if value := e.Value(kind); value != nil && nested(e.name, kind) {
				v = string(value)
			} else if verdict := e.attr(kind, 2); verdict != nil && nested(e.name, kind) {
				v = fmt.Sprint(e.Verdict(kind))
			}
			if v != "" {
				b = fmt.Appendf(b, "%d %d:%s,", kind, len(v), v)
			}
		}
		b = append(b, ')')
	}
	return string(b)
}

// nested reports whether an attribute contains a value or a verdict (NFTA_DATA_*).
func nested(name string, kind uint16) bool {
	switch name {
	case "immediate":
		return kind == 2
	case "cmp":
		return kind == 3
	}
	return name == "bitwise" && kind >= 4
}

// Name returns the kernel's name of the expression.
func (e Expr) Name() string { return e.name }

func (e Expr) attr(kinds ...uint16) []byte {
	return attr([]byte(e.data), slices.Insert(kinds, 0, 2)...)
}

// Has reports whether the expression has an attribute, NFTA_<NAME>_*.
func (e Expr) Has(kind uint16) bool { return e.attr(kind) != nil }

// Num returns an attribute that is a number, or zero.
func (e Expr) Num(kind uint16) uint64 { return getUint(e.attr(kind)) }

// Text returns an attribute that is a name.
func (e Expr) Text(kind uint16) string { return getText(e.attr(kind)) }

// Value returns an attribute that is a constant: NFTA_DATA_VALUE.
func (e Expr) Value(kind uint16) []byte { return e.attr(kind, 1) }

// Verdict returns the verdict in an attribute: NFTA_DATA_VERDICT.
func (e Expr) Verdict(kind uint16) Verdict { return readVerdict(e.attr(kind, 2)) }

// Reg returns the register in an attribute. It is false for the verdict register, and if there is none.
func (e Expr) Reg(kind uint16) (Reg, bool) {
	switch n := e.Num(kind); {
	case n == verdictReg:
		return 0, false
	case n < 8:
		return Reg(n-1) * 4, true
	default:
		return Reg(n - 8), true
	}
}

// readVerdict parses what Verdict.as writes.
func readVerdict(b []byte) Verdict {
	return Verdict{code: int32(getUint(attr(b, 1))), chain: getText(attr(b, 2))}
}
