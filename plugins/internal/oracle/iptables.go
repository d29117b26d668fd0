// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// Rules evaluates tables of iptables for packets.
type Rules struct {
	Of string // a name for the tables: "iptables-legacy"

	// Member reports whether an ipset has the parts of a packet ("dst,dst"), and Mark returns the mark and mask
	// in the set. An error says why that is unknown. If they are nil, rules with sets are not understood.
	Member func(set, parts string, p Packet) (bool, error)
	Mark   func(set, parts string, p Packet) ([2]uint32, error)

	// Drops reports whether a built-in chain has the policy DROP. Nil means that none has.
	Drops func(Hook) bool

	// Forgets says that Packet.Seen is unknown: both outcomes of a rule that depends on it are followed.
	Forgets bool

	tables  map[Hook][]string
	words   func(rule string) ([]string, error)
	clauses map[string]clause
}

// A Rule is an iptables rule without its chain that can be split into words.
type Rule interface {
	~string
	Fields() ([]string, error)
}

// A Hook is a built-in chain.
type Hook struct{ Table, Chain string }

// IPTables returns Rules for the rules of tables.
func IPTables[ID ~struct{ Table, Chain string }, R Rule](tables map[ID][]R) *Rules {
	r := &Rules{
		tables: make(map[Hook][]string, len(tables)), clauses: make(map[string]clause),
		words: func(rule string) ([]string, error) { return R(rule).Fields() },
	}
	for id, rules := range tables {
		all := make([]string, len(rules))
		for i := range rules {
			all[i] = string(rules[i])
		}
		r.tables[Hook(id)] = all
	}
	return r
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
	return len(r.tables[h]) == 0 && (r.Drops == nil || !r.Drops(h))
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
	return allPaths(p, func(in way) (Path, []choice, error) {
		w := &ruleWalk{way: in, rules: r, at: at}
		var policy *Step
		if r.Drops != nil && r.Drops(at) {
			policy = &Step{Hook: at.Chain, Table: at.Table, Chain: at.Chain, Rule: "policy DROP", Matched: true}
		}
		err := w.base(w, at.Chain, policy)
		w.path.To = w.to
		return w.path, w.choices, err
	})
}

// A ruleWalk is one packet on one path. Path.Mark is its present mark.
type ruleWalk struct {
	way
	rules  *Rules
	at     Hook
	failed error // why a rule is not understood, if only the evaluation shows it
}

func (w *ruleWalk) length(chain string) (n int, exists bool) {
	rules, exists := w.rules.tables[Hook{w.at.Table, chain}]
	return len(rules), exists || chain == w.at.Chain
}

func (w *ruleWalk) evaluate(chain string, i int) (step Step, v nftnl.Verdict, ok bool, err error) {
	rule := w.rules.tables[Hook{w.at.Table, chain}][i]
	step = Step{Hook: w.at.Chain, Table: w.at.Table, Chain: chain, Number: i + 1, Rule: rule}
	c, err := w.rules.clause(rule)
	if err != nil {
		return step, v, false, err
	}
	step.Matched = !slices.ContainsFunc(c.tests, func(t test) bool { return !t(w) })
	w.path.Steps = append(w.path.Steps, step)
	if step.Matched && w.failed == nil {
		v, ok = w.act(c.do)
	}
	return step, v, ok, w.failed
}

func (r *Rules) clause(rule string) (clause, error) {
	if c, ok := r.clauses[rule]; ok {
		return c, nil
	}
	words, err := r.words(rule)
	if err != nil {
		return clause{}, err
	}
	c := parse(words)
	r.clauses[rule] = c
	return c, nil
}

// act executes a rule's action and returns its verdict, if it has one.
func (w *ruleWalk) act(a action) (v nftnl.Verdict, ok bool) {
	switch a.verb {
	case "":
		return v, false
	case "DROP":
		return nftnl.Drop, true
	case "RETURN":
		return nftnl.Return, true
	case "-j":
		return nftnl.Jump(a.to), true
	case "-g":
		return nftnl.Goto(a.to), true
	case "REJECT":
		w.path.Verdict = Reject
		return nftnl.Drop, true
	case "MASQUERADE":
		w.path.Masquerade = true
	case "DNAT":
		w.to, _ = netip.ParseAddrPort(a.to) // parse checked it
		w.path.Translated = true
	case "REDIRECT":
		w.to = w.redirected(a.to)
		w.path.Translated = true
	case "MARK":
		w.mark(a.bits)
		return v, false
	case "SET":
		if w.member(a.to, a.parts) {
			var bits [2]uint32
			if bits, w.failed = w.rules.Mark(a.to, a.parts, w.now()); w.failed == nil {
				w.mark(bits)
			}
		}
		return v, false
	}
	return nftnl.Accept, true
}

// mark sets the bits of a mark that are in the mask.
func (w *ruleWalk) mark(bits [2]uint32) { w.path.Mark = w.path.Mark&^bits[1] ^ bits[0] }

// now returns the packet with its present destination and mark.
func (w *ruleWalk) now() Packet {
	p := w.packet
	p.To, p.Mark = w.to, w.path.Mark
	return p
}

// member reports whether a set has the packet.
func (w *ruleWalk) member(set, parts string) (in bool) {
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
func (w *ruleWalk) redirected(port string) netip.AddrPort {
	if w.packet.In != "" {
		w.failed = errors.New("the address of the interface that REDIRECT chooses is unknown")
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if w.to.Addr().Is6() {
		loopback = netip.IPv6Loopback()
	}
	n, _ := strconv.ParseUint(port, 10, 16) // parse checked it
	return netip.AddrPortFrom(loopback, uint16(n))
}

// states returns the conntrack states of a first packet.
func (w *ruleWalk) states() []string {
	switch {
	case w.packet.Untracked:
		return []string{"INVALID"}
	case w.path.Translated || w.packet.Translated.IsValid():
		return []string{"NEW", "DNAT"}
	}
	return []string{"NEW"}
}

// random decides a match that has a probability.
func (w *ruleWalk) random(share float64) bool {
	if w.choose(2) == 0 {
		w.path.Chance *= share
		return true
	}
	w.path.Chance *= 1 - share
	return false
}
