// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net/netip"
	"strings"
)

// A Packet is the first one of a new connection, as it comes to a node.
type Packet struct {
	Protocol string // "tcp", "udp", "sctp"
	From, To netip.AddrPort

	// In is the interface it comes in on; empty when a process of the node sent it. Out is that
	// by which it leaves, where it does and that is known.
	In, Out string
	// Index is the number of an interface. Nil: no rule is known to name one by its number.
	Index func(string) uint32

	// Translated is where it goes by now, if rules have translated it before. To stays where it was sent.
	Translated netip.AddrPort
	// Balanced says that IPVS alone did that. Conntrack does not call it DNAT then.
	Balanced bool

	Mark uint32

	// Untracked says that it has not come to conntrack yet.
	Untracked bool

	// Local reports whether an address is the node's own.
	Local func(netip.Addr) bool

	// Seen are the lists of the recent match that have the sender, and are fresh.
	Seen map[string]bool
}

// Destination returns where it goes by now.
func (p Packet) Destination() netip.AddrPort {
	if p.Translated.IsValid() {
		return p.Translated
	}
	return p.To
}

// String reads "tcp 10.0.0.1:999 > 172.30.0.41:80".
func (p Packet) String() string { return fmt.Sprintf("%s %s > %s", p.Protocol, p.From, p.To) }

// A Verdict is where a packet's way through the tables ends.
type Verdict string

// The verdicts.
const (
	Accept Verdict = "ACCEPT" // it came through
	Drop   Verdict = "DROP"
	Reject Verdict = "REJECT"
)

// A Path is one way that a packet can go. There are several where rules choose at
// random.
type Path struct {
	Verdict    Verdict
	To         netip.AddrPort // where it goes, after translation
	Translated bool
	Masquerade bool
	Chance     float64
	Mark       uint32
	Remembered []string // lists of the recent match that now have the sender
	Steps      []Step   // every rule looked at, in order
}

// A Step is one rule that a packet was held against.
type Step struct {
	Hook, Table, Chain string
	Number             int    // its place in the chain, from 1; zero: it is the chain's policy
	Rule               string // its text; empty where the tables of rules have none
	Matched            bool
}

// Walked counts the rules of table that the packet was held against, at the hook
// where most were. It stops at the first step that stop says, if not nil.
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

// String tells the way, a rule a line, those that did not match left out.
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
