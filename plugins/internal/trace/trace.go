// SPDX-License-Identifier: Apache-2.0

// Package trace walks packets through iptables' rules as the kernel would, without any kernel.
// It answers where the first packet of a connection goes, and how many rules it is held
// against. It imports nothing else of the project, so that whatever reads rules can ask it.
package trace

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strconv"
)

// A Tracer walks packets through tables as the kernel would walk the first packet
// of a new connection: through nat and filter at the hooks on its way. It fails
// loudly on a rule that it does not understand.
type Tracer struct {
	// Sets are the kernel's sets: whether one has the parts of a packet ("dst,dst"),
	// and the mark beside them. Nil: a rule that asks one is not understood.
	Sets func(set, parts string, p Packet) (mark uint32, in bool)

	// Member reports whether a set has the parts of a packet, where Sets is nil. An error says why that
	// is not known.
	Member func(set, parts string, p Packet) (in bool, err error)

	// Marks is what a set has beside the parts of a packet: a mark and which bits of it count, where Sets
	// is nil. Nil: a rule that marks by a set is not understood.
	Marks func(set, parts string, p Packet) (bits [2]uint32, in bool, err error)

	// Recent reports whether a list of the recent match has an address. One that it has may have
	// expired: both ways are followed, as if they were as likely. Nil: a Packet's Seen says it.
	Recent func(list string, from netip.Addr) bool

	// Socket reports whether a socket of the node takes a packet, one at all of its addresses too where wildcards
	// is set. An error says why that is not known. Nil: a rule that asks is not understood.
	Socket func(p Packet, wildcards bool) (bool, error)

	// Drops reports whether one of the kernel's own chains drops what its rules let pass. Nil:
	// none does.
	Drops func(Hook) bool

	chain   func(Hook) (rules iter.Seq[string], there bool)
	words   func(rule string) ([]string, error)
	clauses map[string]clause
}

// A Rule is one of iptables', without its chain, that can be taken apart into words.
type Rule interface {
	~string
	Fields() ([]string, error)
}

// New traces through tables: rules by table and chain.
func New[ID ~struct{ Table, Chain string }, R Rule](tables map[ID][]R) *Tracer {
	return &Tracer{
		chain: func(at Hook) (iter.Seq[string], bool) {
			rules, there := tables[ID(at)]
			return func(yield func(string) bool) {
				for _, r := range rules {
					if !yield(string(r)) {
						return
					}
				}
			}, there
		},
		words:   func(rule string) ([]string, error) { return R(rule).Fields() },
		clauses: make(map[string]clause),
	}
}

// Trace follows p on every way that it can go.
func (t *Tracer) Trace(p Packet) ([]Path, error) { return t.every(p, (*walk).run) }

// At follows p through one of the kernel's own chains, on every way that it can go there.
func (t *Tracer) At(p Packet, at Hook) ([]Path, error) {
	return t.every(p, func(w *walk) error { return w.enter(at.Table, at.Chain) })
}

// every takes a packet on each way that there is.
func (t *Tracer) every(p Packet, way func(*walk) error) ([]Path, error) {
	var paths []Path
	var choices []bool
	for {
		w := t.begin(p)
		w.choices = choices
		if err := way(w); err != nil {
			return nil, fmt.Errorf("trace %s: %w", p, err)
		}
		if w.path.Mark = w.mark; w.path.Chance > 0 {
			paths = append(paths, w.path)
		}
		choices = w.choices
		for len(choices) > 0 && !choices[len(choices)-1] {
			choices = choices[:len(choices)-1]
		}
		if len(choices) == 0 {
			return paths, nil
		}
		choices[len(choices)-1] = false // and now the other way
	}
}

func (t *Tracer) begin(p Packet) *walk {
	w := &walk{tracer: t, packet: p, to: p.Destination(), mark: p.Mark}
	w.path = Path{Verdict: Accept, To: w.to, Translated: p.Translated.IsValid() && !p.Balanced, Chance: 1}
	return w
}

// A Hook is one table at one of the kernel's hooks.
type Hook struct{ Table, Chain string }

// Pass takes p through some hooks, where nothing is chosen at random, as long as it
// is accepted.
func (t *Tracer) Pass(p Packet, hooks ...Hook) (Path, error) {
	w := t.begin(p)
	for _, h := range hooks {
		if err := w.enter(h.Table, h.Chain); err != nil {
			return w.path, fmt.Errorf("trace %s: %w", p, err)
		}
		if w.path.Verdict != Accept {
			break
		}
	}
	w.path.Mark = w.mark
	return w.path, nil
}

// A walk is one packet on one way. Random matches are answered from choices: true
// first, and false when the tracer comes back.
type walk struct {
	tracer *Tracer
	packet Packet
	to     netip.AddrPort
	mark   uint32
	hook   string
	table  string
	path   Path

	choices []bool
	asked   int
	failed  error // why a rule is not understood, where that is seen only as a packet comes to it
}

// run takes the packet from its first hook to its last. What is sent to the node
// itself ends in INPUT, all else is forwarded; what the node sent leaves by
// OUTPUT, and comes back by INPUT if it is for itself.
func (w *walk) run() error {
	hooks := [][2]string{{"nat", "PREROUTING"}}
	if w.packet.In == "" {
		hooks = [][2]string{{"nat", "OUTPUT"}, {"filter", "OUTPUT"}}
	}
	for _, h := range hooks {
		if err := w.enter(h[0], h[1]); err != nil || w.path.Verdict != Accept {
			return err
		}
	}
	local := w.packet.Local(w.to.Addr())
	switch {
	case local && w.packet.In != "":
		hooks = [][2]string{{"filter", "INPUT"}}
	case local:
		hooks = [][2]string{{"nat", "POSTROUTING"}, {"filter", "INPUT"}}
	case w.packet.In != "":
		hooks = [][2]string{{"filter", "FORWARD"}, {"nat", "POSTROUTING"}}
	default:
		hooks = [][2]string{{"nat", "POSTROUTING"}}
	}
	for _, h := range hooks {
		if err := w.enter(h[0], h[1]); err != nil || w.path.Verdict != Accept {
			return err
		}
	}
	return nil
}

// enter walks one table at one hook. What no rule decides is accepted.
func (w *walk) enter(table, hook string) error {
	w.table, w.hook = table, hook
	w.path.Verdict, w.path.To = Accept, w.to
	decided, err := w.chain(hook, 0)
	if at := (Hook{table, hook}); err == nil && !decided && w.tracer.Drops != nil && w.tracer.Drops(at) {
		w.path.Verdict = Drop
		w.path.Steps = append(w.path.Steps, Step{Hook: hook, Table: table, Chain: hook, Rule: "policy DROP", Matched: true})
	}
	w.path.To = w.to
	return err
}

// deepest is how far chains may lead into one another; nft allows no more.
const deepest = 16

// chain walks one chain and reports whether the packet's fate in this table is
// decided.
func (w *walk) chain(name string, depth int) (decided bool, err error) {
	if depth >= deepest {
		return false, fmt.Errorf("chain %s: more than %d chains deep, which nft does not take", name, deepest)
	}
	rules, ok := w.tracer.chain(Hook{w.table, name})
	if !ok && depth > 0 {
		return false, fmt.Errorf("there is no chain %s in table %s", name, w.table)
	}
	number := 0
	for r := range rules {
		number++
		c, err := w.tracer.clause(r)
		if err != nil {
			return false, &Unknown{Hook{w.table, name}, r, err}
		}
		matched := w.matches(c)
		if w.failed != nil {
			return false, &Unknown{Hook{w.table, name}, r, w.failed}
		}
		w.path.Steps = append(w.path.Steps, Step{w.hook, w.table, name, number, r, matched})
		if !matched {
			continue
		}
		switch c.do.verb {
		case "RETURN":
			return false, nil
		case "goto":
			return w.chain(c.do.to, depth+1)
		case "jump":
			if decided, err := w.chain(c.do.to, depth+1); decided || err != nil {
				return decided, err
			}
		default:
			decided := w.act(c.do)
			if w.failed != nil {
				return false, &Unknown{Hook{w.table, name}, r, w.failed}
			}
			if decided {
				return true, nil
			}
		}
	}
	return false, nil
}

// An Unknown is a rule of which this package cannot tell what it does to a packet.
type Unknown struct {
	Chain Hook
	Rule  string
	Why   error
}

func (u *Unknown) Error() string {
	return fmt.Sprintf("%s %s: rule %q: %v", u.Chain.Table, u.Chain.Chain, u.Rule, u.Why)
}

func (u *Unknown) Unwrap() error { return u.Why }

func (t *Tracer) clause(r string) (clause, error) {
	if c, ok := t.clauses[r]; ok {
		return c, nil
	}
	words, err := t.words(r)
	if err != nil {
		return clause{}, err
	}
	c := parse(words)
	t.clauses[r] = c
	return c, nil
}

func (w *walk) matches(c clause) bool {
	for _, t := range c.tests {
		if !t(w) {
			return false
		}
	}
	return true
}

// act does what a rule says and reports whether that decides.
func (w *walk) act(a action) bool {
	switch a.verb {
	case "DROP":
		w.path.Verdict = Drop
	case "REJECT":
		w.path.Verdict = Reject
	case "MASQUERADE":
		w.path.Masquerade = true
	case "DNAT":
		w.to, _ = netip.ParseAddrPort(a.to) // parse checked it
		w.path.Translated = true
	case "REDIRECT":
		w.to = w.redirected(a.to)
		w.path.Translated = true
	case "MARK":
		w.mark = w.mark&^a.bits[1] ^ a.bits[0]
		return false
	case "SET":
		w.markBySet(a)
		return false
	case "":
		return false
	}
	return true
}

// redirected is port of the node itself, as a process there is sent to it. What comes in is sent to an
// address of the interface (iptables-extensions(8)), which is not known here.
func (w *walk) redirected(port string) netip.AddrPort {
	if w.packet.In != "" {
		w.failed = errors.New("the tracer does not know which address of the interface REDIRECT takes")
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if w.to.Addr().Is6() {
		loopback = netip.IPv6Loopback()
	}
	n, _ := strconv.ParseUint(port, 10, 16) // parse checked it
	return netip.AddrPortFrom(loopback, uint16(n))
}

// tracked reports whether conntrack knows the packet. Before that, what it would say is not understood.
func (w *walk) tracked() bool {
	if w.packet.Untracked {
		w.failed = errors.New("it asks conntrack, to which the packet comes later")
	}
	return !w.packet.Untracked
}

// states are what the conntrack match calls a first packet.
func (w *walk) states() []string {
	if w.path.Translated {
		return []string{"NEW", "DNAT"}
	}
	return []string{"NEW"}
}

// random answers a match that is true with chance share.
func (w *walk) random(share float64) bool {
	if w.asked == len(w.choices) {
		w.choices = append(w.choices, true)
	}
	yes := w.choices[w.asked]
	w.asked++
	if yes {
		w.path.Chance *= share
	} else {
		w.path.Chance *= 1 - share
	}
	return yes
}
