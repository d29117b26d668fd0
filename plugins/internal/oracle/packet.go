// SPDX-License-Identifier: Apache-2.0

// Package oracle says where rules of iptables and nf_tables send the first packet of a connection, without any
// kernel. Tests hold what a dataplane would write against it, and explain walks the rules of a node with it.
//
// A rule that it does not understand is an Unknown, and only for packets that come to that rule: a verdict that
// the oracle gives is the kernel's.
package oracle

import (
	"fmt"
	"net/netip"
	"strings"
)

// A Packet is the first one of a new connection, as it comes to a node.
type Packet struct {
	Protocol string // "tcp", "udp", "sctp"; for nf_tables also "icmp" and "ipv6-icmp": an echo request
	From, To netip.AddrPort

	// In is the interface it comes in on; empty when a process of the node sent it. Out is the interface by
	// which it leaves, if that is known.
	In, Out string
	// Index returns the number of an interface. Nil: no rule is known to name one by its number.
	Index func(string) uint32

	// Translated is where it goes by now, if rules have translated it before. To stays where it was sent.
	Translated netip.AddrPort

	Mark uint32

	// Untracked says that it has not come to conntrack yet.
	Untracked bool

	// Local reports whether an address is the node's own.
	Local func(netip.Addr) bool

	// Seen are the lists of the recent match that have the sender, and are fresh.
	Seen map[string]bool
}

// Destination returns where the packet goes by now.
func (p Packet) Destination() netip.AddrPort {
	if p.Translated.IsValid() {
		return p.Translated
	}
	return p.To
}

// String reads "tcp 10.0.0.1:999 > 172.30.0.41:80".
func (p Packet) String() string { return fmt.Sprintf("%s %s > %s", p.Protocol, p.From, p.To) }

// A Verdict is where a packet's way through the rules ends.
type Verdict string

// The verdicts.
const (
	Accept Verdict = "ACCEPT" // it came through
	Drop   Verdict = "DROP"
	Reject Verdict = "REJECT"
)

// A Path is one way that a packet can go. There are several where rules choose at random.
type Path struct {
	Verdict    Verdict
	To         netip.AddrPort // where it goes, after translation
	Translated bool
	Masquerade bool
	Local      bool // it comes to the node itself
	Chance     float64
	Mark       uint32
	Then       string   // what decides next that is not followed, such as IPVS; empty: Verdict is final
	Remembered []string // lists of the recent match that now have the sender
	Steps      []Step   // of iptables every rule looked at, of nf_tables those that matched, in order
}

// A Step is one rule that a packet was held against.
type Step struct {
	Of                 string // what has the rule, for people: "nftables, table ip mine"
	Hook, Table, Chain string
	Number             int    // its place in the chain, from 1; zero: it is no rule, and Rule says what it is
	Rule               string // its text; empty where the kernel has none
	Matched            bool
}

// String names the rule as an operator finds it.
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

// Walked counts the rules of table that the packet was held against, at the hook where most were. It stops at the
// first step for which stop is true, if stop is not nil.
func (p Path) Walked(table string, stop func(Step) bool) int {
	most := 0
	count := make(map[string]int)
	done := make(map[string]bool)
	for _, s := range p.Steps {
		if s.Table != table || done[s.Hook] {
			continue
		}
		if stop != nil && stop(s) {
			done[s.Hook] = true
			continue
		}
		count[s.Hook]++
		most = max(most, count[s.Hook])
	}
	return most
}

// String tells the way, a rule a line. Rules that did not match are left out.
func (p Path) String() string {
	var b strings.Builder
	for _, s := range p.Steps {
		if s.Matched {
			fmt.Fprintf(&b, "%s %s: -A %s %s\n", s.Hook, s.Table, s.Chain, s.Rule)
		}
	}
	fmt.Fprintf(&b, "= %s %s", p.Verdict, p.To)
	if p.Masquerade {
		b.WriteString(" masquerade")
	}
	return b.String()
}

// An Unknown is a rule of which the oracle cannot tell what it does to a packet.
type Unknown struct {
	Step
	Why error
}

func (u *Unknown) Error() string { return fmt.Sprintf("%s: %v", u.Step, u.Why) }

func (u *Unknown) Unwrap() error { return u.Why }

// A way is one packet on one of the ways through a base chain.
type way struct {
	packet Packet
	to     netip.AddrPort
	path   Path

	choices []choice
	asked   int
}

// A choice is one of several ways that are left to chance.
type choice struct{ taken, of int }

// choose takes one of several ways.
func (w *way) choose(of int) int {
	if w.asked == len(w.choices) {
		w.choices = append(w.choices, choice{of: of})
	}
	w.asked++
	return w.choices[w.asked-1].taken
}

// next returns the choices of the way after the one with these; nil: there is none.
func next(choices []choice) []choice {
	for n := len(choices); n > 0; n-- {
		if c := &choices[n-1]; c.taken+1 < c.of {
			c.taken++
			return choices[:n]
		}
	}
	return nil
}

// every takes a packet on each way that there is.
func every(p Packet, take func(way) (Path, []choice, error)) (paths []Path, err error) {
	for choices := []choice(nil); ; {
		path, made, err := take(way{packet: p, to: p.Destination(), path: Path{Verdict: Accept, Chance: 1, Mark: p.Mark}, choices: choices})
		if err != nil {
			return nil, fmt.Errorf("trace %s: %w", p, err)
		}
		if path.Chance > 0 {
			paths = append(paths, path)
		}
		if choices = next(made); choices == nil {
			return paths, nil
		}
	}
}

// Merge makes paths that end in the same way one, with the steps of the first.
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
