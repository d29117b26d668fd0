// SPDX-License-Identifier: Apache-2.0

// Package oracle computes where rules of iptables and nf_tables send the first packet of a connection, without
// a kernel. Tests use it to check the rules that a dataplane would write, and explain uses it to evaluate the
// rules of a node.
//
// A packet that reaches a rule which the oracle does not understand results in an Unknown. Invariant: if the
// oracle gives a verdict, it is the kernel's.
//
// The oracle never changes anything, and never guesses. Start with Node.Walk, which follows a packet through base
// chains. Rules evaluates those of iptables, and TableRules those of nf_tables; both compile their rules
// (match.go, exprs.go), and way.chain follows jumps and verdicts.
package oracle

import (
	"fmt"
	"net/netip"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// A Packet is the first packet of a new connection when it reaches a node.
type Packet struct {
	Protocol string // "tcp", "udp", "sctp"
	From, To netip.AddrPort

	// In is the input interface; empty if a process of the node sent the packet. Out is the output interface if
	// it is known.
	In, Out string
	// Index returns the index of an interface. If it is nil, every interface has an index that no rule matches.
	Index func(string) uint32

	// Translated is the present destination if rules have translated the packet. To keeps the original one.
	Translated netip.AddrPort

	Mark uint32

	// Untracked says that the packet has not reached conntrack yet.
	Untracked bool

	// Local reports whether an address belongs to the node.
	Local func(netip.Addr) bool
}

// Destination returns the packet's present destination.
func (p Packet) Destination() netip.AddrPort {
	if p.Translated.IsValid() {
		return p.Translated
	}
	return p.To
}

// String returns "tcp 10.0.0.1:999 > 172.30.0.41:80".
func (p Packet) String() string { return fmt.Sprintf("%s %s > %s", p.Protocol, p.From, p.To) }

// A Verdict is the end of a packet's path through the rules.
type Verdict string

// The verdicts.
const (
	Accept Verdict = "ACCEPT" // the packet passed all hooks
	Drop   Verdict = "DROP"
	Reject Verdict = "REJECT"
)

// A Path is one path that a packet can take. There are several if rules choose at random.
type Path struct {
	Verdict    Verdict
	To         netip.AddrPort // destination after translation
	Translated bool
	Masquerade bool
	Local      bool // the packet is delivered to the node itself
	Chance     float64
	Mark       uint32
	Then       string // what decides next and is not followed, such as IPVS; empty: Verdict is final
	Steps      []Step // in order: all evaluated rules of iptables, and the matching rules of nf_tables
}

// A Step is one rule that was evaluated for a packet.
type Step struct {
	Of                 string // a name for the owner: "nftables, table ip mine"
	Hook, Table, Chain string
	Number             int    // position in the chain, from 1; zero: not a rule, and Rule describes it
	Rule               string // the rule's text; empty if the kernel has none
	Matched            bool
}

// String returns the position of the rule as an operator finds it.
func (s Step) String() string {
	if s.Chain == "" {
		return s.Rule
	}
	text := "chain " + s.Chain
	if s.Of != "" {
		text = s.Of + ", " + text
	}
	if s.Number > 0 {
		text += fmt.Sprintf(", rule %d", s.Number)
	}
	if s.Rule != "" {
		text += ": " + s.Rule
	}
	return text
}

// An Unknown is a rule whose effect on a packet the oracle cannot determine.
type Unknown struct {
	Step
	Why error
}

func (u *Unknown) Error() string { return fmt.Sprintf("%s: %v", u.Step, u.Why) }

func (u *Unknown) Unwrap() error { return u.Why }

// A rule is a compiled rule of one chain.
type rule struct {
	text string // empty if the kernel has none

	// evaluate evaluates the rule for a packet. If it has no verdict, v is nil and the next rule follows.
	evaluate func(*way) (matched bool, v *nftnl.Verdict, err error)
}

// A way is one packet on one path through a base chain.
type way struct {
	packet Packet
	at     Hook // the base chain; its table is empty for nf_tables
	to     netip.AddrPort
	path   Path // Mark is the present mark
	chains func(name string) (rules []rule, exist bool)

	choices []choice
	asked   int

	rules  *Rules // of iptables
	failed error  // why a rule of iptables is not understood, if only the evaluation shows it

	proto    byte      // of nf_tables, like the rest
	regs     registers // of the present rule
	priority uint32    // meta priority
}

// A choice is a random choice: taken is the selected case of of.
type choice struct{ taken, of int }

// choose selects one of several cases.
func (w *way) choose(of int) int {
	if w.asked == len(w.choices) {
		w.choices = append(w.choices, choice{of: of})
	}
	w.asked++
	return w.choices[w.asked-1].taken
}

// nextChoices returns the choices of the path after the one with these choices, or nil.
func nextChoices(choices []choice) []choice {
	for n := len(choices); n > 0; n-- {
		if c := &choices[n-1]; c.taken+1 < c.of {
			c.taken++
			return choices[:n]
		}
	}
	return nil
}

// all follows w's packet on all paths through its base chain. policy is the step of the chain's policy, if that is to
// drop.
func (w way) all(p Packet, policy *Step) (paths []Path, err error) {
	w.packet, w.to = p, p.Destination()
	for choices := []choice(nil); ; {
		one := w
		one.path, one.choices = Path{Verdict: Accept, Chance: 1, Mark: p.Mark}, choices
		decided, err := one.chain(w.at.Chain, 0)
		if err != nil {
			return nil, fmt.Errorf("trace %s: %w", p, err)
		}
		if !decided && policy != nil {
			one.path.Verdict = Drop
			one.path.Steps = append(one.path.Steps, *policy)
		}
		if one.path.To = one.to; one.path.Chance > 0 {
			paths = append(paths, one.path)
		}
		if choices = nextChoices(one.choices); choices == nil {
			return paths, nil
		}
	}
}

// deepest is the maximum depth of jumps: NFT_JUMP_STACK_SIZE.
const deepest = 16

// chain evaluates one chain, and reports whether it decides.
func (w *way) chain(name string, depth int) (decided bool, err error) {
	rules, exist := w.chains(name)
	if !exist || depth >= deepest {
		return false, fmt.Errorf("chain %s does not exist, or is more than %d deep", name, deepest)
	}
	for i, r := range rules {
		step := Step{Hook: w.at.Chain, Table: w.at.Table, Chain: name, Number: i + 1, Rule: r.text}
		matched, v, err := r.evaluate(w)
		if err != nil {
			return false, &Unknown{step, err}
		}
		if step.Matched = matched; v != nil || r.text != "" {
			w.path.Steps = append(w.path.Steps, step)
		}
		switch {
		case v == nil:
		case *v == nftnl.Return:
			return false, nil
		case *v == nftnl.Goto(v.Chain()):
			return w.chain(v.Chain(), depth+1)
		case *v == nftnl.Jump(v.Chain()):
			if decided, err := w.chain(v.Chain(), depth+1); decided || err != nil {
				return decided, err
			}
		case *v == nftnl.Accept:
			return true, nil
		case *v == nftnl.Drop:
			if w.path.Verdict != Reject { // the rule has answered the packet
				w.path.Verdict = Drop
			}
			return true, nil
		default:
			return false, &Unknown{step, fmt.Errorf("the verdict %v", *v)}
		}
	}
	return false, nil
}

// Merge combines paths with the same end into one with the steps of the first.
func Merge(paths []Path) (merged []Path) {
	type end struct {
		verdict                Verdict
		to                     netip.AddrPort
		translated, masquerade bool
		mark                   uint32
		then                   string
	}
	at := make(map[end]int)
	for _, p := range paths {
		e := end{p.Verdict, p.To, p.Translated, p.Masquerade, p.Mark, p.Then}
		if i, known := at[e]; known {
			merged[i].Chance += p.Chance
			continue
		}
		at[e] = len(merged)
		merged = append(merged, p)
	}
	return merged
}
