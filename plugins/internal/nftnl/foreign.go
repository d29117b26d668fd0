// SPDX-License-Identifier: Apache-2.0

package nftnl

// This file recognizes what rules of other programs do with every packet that reaches them.

// Refuses reports whether a rule drops or rejects every packet.
func (o Observed) Refuses() bool {
	o = o.bare()
	return o.Is([]Expr{Do(Drop)}) || o.Is([]Expr{{name: "reject"}}) || o.Is([]Expr{expr("target", text(1, "REJECT"))})
}

// AcceptsTranslated reports whether a rule accepts every packet of a connection whose destination is
// translated.
func (o Observed) AcceptsTranslated() bool {
	status := string(native.AppendUint32(nil, 1<<5)) // IPS_DST_NAT
	o = o.bare()
	return o.Is([]Expr{Do(Accept)}) ||
		o.Is([]Expr{CT(CTStatus, 0), Mask(0, status), Cmp(NotEqual, 0, "\x00\x00\x00\x00"), Do(Accept)}) ||
		o.Is([]Expr{expr("match", text(1, "conntrack")), Do(Accept)}) && o.ofStateDNAT()
}

// JumpsTo reports whether a rule jumps to a chain for every packet.
func (o Observed) JumpsTo(chain string) bool { return o.bare().Is([]Expr{Do(Jump(chain))}) }

// ofStateDNAT reports whether iptables' conntrack match, in a rule, matches the state DNAT ("-m conntrack
// --ctstate DNAT") without another condition.
func (o Observed) ofStateDNAT() bool {
	const flags, inverted, states = 146, 148, 150 // in struct xt_conntrack_mtinfo3
	var info []byte
	eachAttr(o.exprs, func(_ uint16, v []byte) {
		if getText(attr(v, 1)) == "match" {
			info = attr(v, 2, 3) // NFTA_MATCH_INFO
		}
	})
	return len(info) >= states+2 && native.Uint16(info[flags:]) == 1 && // XT_CONNTRACK_STATE
		native.Uint16(info[inverted:]) == 0 && native.Uint16(info[states:])&(1<<7) != 0 // XT_CONNTRACK_STATE_DNAT
}

// bare returns a rule without the expressions that only count or log.
func (o Observed) bare() Observed {
	var rest attrs
	eachAttr(o.exprs, func(kind uint16, v []byte) {
		if name := getText(attr(v, 1)); name != "counter" && name != "log" {
			rest.put(kind, string(v))
		}
	})
	o.exprs = rest
	return o
}
