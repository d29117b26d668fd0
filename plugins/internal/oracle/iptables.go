// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// Rules evaluates tables of iptables for packets.
type Rules struct {
	Of string // a name for the tables: "iptables-legacy"

	// Member reports whether an ipset has the parts of a packet ("dst,dst"), and Mark returns the mark and mask
	// in the set. An error says why that is unknown. If they are nil, rules with sets are not understood.
	Member func(set, parts string, p Packet) (bool, error)
	Mark   func(set, parts string, p Packet) ([2]uint32, error)

	Drops map[Hook]bool // built-in chains with the policy DROP

	// Remembers says that the lists of the match recent may have the source: both outcomes of a rule that looks
	// there are followed. Otherwise they are empty.
	Remembers bool

	tables  iptables.Tables
	clauses map[iptables.Rule]clause
}

// A Hook is a built-in chain.
type Hook = iptables.ID

// IPTables returns Rules for the rules of tables.
func IPTables(tables iptables.Tables) *Rules {
	return &Rules{tables: tables, clauses: make(map[iptables.Rule]clause)}
}

// priorities are the priorities of the built-in chains: NF_IP_PRI_*.
var priorities = map[string]map[string]int32{
	"raw":      {"PREROUTING": -300, "OUTPUT": -300},
	"mangle":   {"PREROUTING": -150, "INPUT": -150, "FORWARD": -150, "OUTPUT": -150, "POSTROUTING": -150},
	"nat":      {"PREROUTING": -100, "INPUT": 100, "OUTPUT": -100, "POSTROUTING": 100},
	"filter":   {"INPUT": 0, "FORWARD": 0, "OUTPUT": 0},
	"security": {"INPUT": 50, "FORWARD": 50, "OUTPUT": 50},
}

var hooks = map[string]uint32{
	"PREROUTING": nftnl.PreRouting, "INPUT": nftnl.Input, "FORWARD": nftnl.Forward, "OUTPUT": nftnl.Output, "POSTROUTING": nftnl.PostRouting,
}

// Has reports whether a chain exists.
func (r *Rules) Has(h Hook) bool {
	_, there := r.tables[h]
	return there
}

// Idle reports whether a built-in chain has no rules and accepts everything.
func (r *Rules) Idle(h Hook) bool {
	return len(r.tables[h]) == 0 && !r.Drops[h]
}

// Bases returns the built-in chains that are not idle, sorted.
func (r *Rules) Bases() (bases []Base) {
	for h := range r.tables {
		if priority, is := priorities[h.Table][h.Chain]; is && !r.Idle(h) {
			bases = append(bases, Base{
				Of: r.Of + ", table " + h.Table, Hook: hooks[h.Chain], Priority: priority, NAT: h.Table == "nat",
				At: func(p Packet) ([]Path, error) { return r.At(p, h) },
			})
		}
	}
	Sort(bases)
	return bases
}

// At follows p on all paths through a built-in chain. A packet that no rule decides is accepted.
func (r *Rules) At(p Packet, at Hook) ([]Path, error) {
	chains := func(name string) (rules []rule, exist bool) {
		all, exist := r.tables[Hook{Table: at.Table, Chain: name}]
		for _, text := range all {
			rules = append(rules, rule{string(text), func(w *way) (bool, *nftnl.Verdict, error) { return r.evaluate(w, text) }})
		}
		return rules, exist || name == at.Chain
	}
	var policy *Step
	if r.Drops[at] {
		policy = &Step{Hook: at.Chain, Table: at.Table, Chain: at.Chain, Rule: "policy DROP", Matched: true}
	}
	return way{at: at, chains: chains, rules: r}.all(p, policy)
}

func (r *Rules) evaluate(w *way, text iptables.Rule) (matched bool, v *nftnl.Verdict, err error) {
	c, err := r.clause(text)
	if err != nil {
		return false, nil, err
	}
	matched = !slices.ContainsFunc(c.tests, func(t test) bool { return !t(w) })
	if matched && w.failed == nil && c.do != nil {
		v = c.do(w)
	}
	return matched, v, w.failed
}

func (r *Rules) clause(rule iptables.Rule) (clause, error) {
	if c, ok := r.clauses[rule]; ok {
		return c, nil
	}
	words, err := rule.Fields()
	if err != nil {
		return clause{}, err
	}
	c := parse(words)
	r.clauses[rule] = c
	return c, nil
}

// mark sets the bits of a mark that are in the mask.
func (w *way) mark(bits [2]uint32) { w.path.Mark = w.path.Mark&^bits[1] ^ bits[0] }

// now returns the packet with its present destination and mark.
func (w *way) now() Packet {
	p := w.packet
	p.To, p.Mark = w.to, w.path.Mark
	return p
}

// member reports whether a set has the packet.
func (w *way) member(set, parts string) (in bool) {
	if w.rules.Member == nil {
		w.failed = fmt.Errorf("the set %s cannot be read", set)
		return false
	}
	in, err := w.rules.Member(set, parts, w.now())
	if err != nil {
		w.failed = err
	}
	return in
}

// redirected returns a port of the node for REDIRECT in OUTPUT. For packets from outside, the kernel uses an
// address of the input interface (iptables-extensions(8)), which is unknown here.
func (w *way) redirected(port uint16) netip.AddrPort {
	if w.packet.In != "" {
		w.failed = errors.New("the address of the interface that REDIRECT chooses is unknown")
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if w.to.Addr().Is6() {
		loopback = netip.IPv6Loopback()
	}
	return netip.AddrPortFrom(loopback, port)
}

// states returns the conntrack states of a first packet.
func (w *way) states() []string {
	switch {
	case w.packet.Untracked:
		return []string{"INVALID"}
	case w.path.Translated || w.packet.Translated.IsValid():
		return []string{"NEW", "DNAT"}
	}
	return []string{"NEW"}
}

// random decides a match that has a probability.
func (w *way) random(share float64) bool {
	if w.choose(2) == 0 {
		w.path.Chance *= share
		return true
	}
	w.path.Chance *= 1 - share
	return false
}
