// SPDX-License-Identifier: Apache-2.0

package nftnl

import "slices"

// This file recognizes what rules of other programs do with every packet that reaches them.

// Refuses reports whether a rule drops or rejects every packet.
func (o Observed) Refuses() bool {
	rule := o.bare()
	return len(rule) == 1 && (rule[0].does(Drop) || rule[0].Rejects())
}

// AcceptsTranslated reports whether a rule accepts every packet of a connection whose destination is
// translated.
func (o Observed) AcceptsTranslated() bool {
	rule := o.bare()
	last := len(rule) - 1
	switch {
	case last < 0 || !rule[last].does(Accept):
		return false
	case last < 2:
		return last == 0 || rule[0].isStateDNAT()
	}
	status := string(native.AppendUint32(nil, 1<<5)) // IPS_DST_NAT
	return Canonical(rule[:last]) == Canonical([]Expr{CT(CTStatus, 0), Mask(0, status), Cmp(NotEqual, 0, "\x00\x00\x00\x00")})
}

// JumpsTo reports whether a rule jumps to a chain for every packet.
func (o Observed) JumpsTo(chain string) bool {
	rule := o.bare()
	return len(rule) == 1 && rule[0].does(Jump(chain))
}

// Rejects reports whether the expression rejects packets, by itself or as a target of iptables.
func (e Expr) Rejects() bool {
	return e.name == "reject" || e.name == "target" && e.Text(1) == "REJECT"
}

// does reports whether the expression executes a verdict.
func (e Expr) does(v Verdict) bool {
	return e.name == "immediate" && e.attr(2, 2) != nil && e.Verdict(2) == v
}

// isStateDNAT reports whether the expression is iptables' conntrack match and matches the state DNAT ("-m conntrack
// --ctstate DNAT") without another condition.
func (e Expr) isStateDNAT() bool {
	const flags, inverted, states = 146, 148, 150                                                                        // in struct xt_conntrack_mtinfo3
	info := e.attr(3)                                                                                                    // NFTA_MATCH_INFO
	return e.name == "match" && e.Text(1) == "conntrack" && len(info) >= states+2 && native.Uint16(info[flags:]) == 1 && // XT_CONNTRACK_STATE
		native.Uint16(info[inverted:]) == 0 && native.Uint16(info[states:])&(1<<7) != 0 // XT_CONNTRACK_STATE_DNAT
}

// bare returns the expressions of a rule without those that only count or log.
func (o Observed) bare() []Expr {
	return slices.DeleteFunc(o.Exprs(), func(e Expr) bool { return e.name == "counter" || e.name == "log" })
}
