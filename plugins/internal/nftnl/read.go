// SPDX-License-Identifier: Apache-2.0

package nftnl

import "slices"

// Exprs are those of a rule, as the kernel has them: with every attribute, also those that it
// adds.
func (o Observed) Exprs() (all []Expr) {
	eachAttr(o.exprs, func(_ uint16, v []byte) {
		all = append(all, Expr{getText(attr(v, 1)), nest(2, string(attr(v, 2)))})
	})
	return all
}

// Name is what the kernel calls the expression.
func (e Expr) Name() string { return e.name }

func (e Expr) attr(kinds ...uint16) []byte {
	return attr([]byte(e.data), slices.Insert(kinds, 0, 2)...)
}

// Has reports whether the expression has an attribute: NFTA_<NAME>_*, as for the others.
func (e Expr) Has(kind uint16) bool { return e.attr(kind) != nil }

// Num is a number; zero: there is none.
func (e Expr) Num(kind uint16) uint64 { return getUint(e.attr(kind)) }

// Text is a name.
func (e Expr) Text(kind uint16) string { return getText(e.attr(kind)) }

// Value is a constant: NFTA_DATA_VALUE.
func (e Expr) Value(kind uint16) []byte { return e.attr(kind, 1) }

// Verdict is the one in an attribute: NFTA_DATA_VERDICT.
func (e Expr) Verdict(kind uint16) Verdict { return readVerdict(e.attr(kind, 2)) }

// Reg is the register in an attribute; false: it is the verdict's, or there is none.
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

// readVerdict reads what Verdict.as writes.
func readVerdict(b []byte) Verdict {
	return Verdict{code: int32(getUint(attr(b, 1))), chain: getText(attr(b, 2))}
}
