// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"cmp"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// A Base is one base chain, whatever program created it.
type Base struct {
	Of       string // a name for the owner: "nftables, table inet mine"
	Hook     uint32 // NF_INET_*
	Priority int32
	NAT      bool
	Age      [2]uint64 // handles of the table and the chain in nf_tables, which increase with time; zero for legacy iptables
	At       func(Packet) ([]Path, error)
}

// effectivePriority returns the priority at which the kernel calls a base chain. It calls all nat chains of a hook from
// nf_nat, at the priority of nf_nat. Their own priorities only order them (net/netfilter/nf_nat_core.c).
func (b Base) effectivePriority() int32 {
	switch {
	case !b.NAT:
		return b.Priority
	case b.Hook == nftnl.Input || b.Hook == nftnl.PostRouting:
		return 100 // NF_IP_PRI_NAT_SRC
	}
	return -100 // NF_IP_PRI_NAT_DST
}

// Sort sorts base chains in the order in which the kernel calls them. For equal priorities that is the one
// registered last first (nf_hook_entries_grow). The kernel does not report the time of registration, so Sort
// assumes that newer tables, and in one table newer chains, were registered later, and legacy iptables first.
func Sort(bases []Base) {
	slices.SortStableFunc(bases, func(a, b Base) int {
		return cmp.Or(cmp.Compare(a.effectivePriority(), b.effectivePriority()), cmp.Compare(a.Priority, b.Priority), slices.Compare(b.Age[:], a.Age[:]))
	})
}

// A Node is what packets pass through.
type Node struct {
	Bases []Base // sorted

	// Route returns the route of a packet with its present destination. If it is nil, packets to Local
	// addresses are local and all others are forwarded.
	Route func(Packet) (Route, error)
}

// A Route is what the kernel does with a packet to a destination.
type Route struct {
	Local   bool
	Out     string  // the output interface
	Verdict Verdict // Accept: the packet continues
	Text    string  // a description, or empty
}

// A flow is a packet on one path through a node.
type flow struct {
	packet  Packet
	path    Path
	local   bool // the destination is the node itself
	settled bool // a nat chain of this hook has decided, so the others are skipped
	routed  string
}

func (f flow) done() bool { return f.path.Verdict != Accept || f.path.Then != "" }

// Walk follows a packet from its first hook to its last, on all paths.
func (n Node) Walk(p Packet) ([]Path, error) {
	w := &walker{Node: n, flows: []flow{{packet: p, path: Path{
		Verdict: Accept, To: p.Destination(), Translated: p.Translated.IsValid(), Chance: 1, Mark: p.Mark,
	}}}}
	all := func(flow) bool { return true }
	here := func(f flow) bool { return f.local }
	away := func(f flow) bool { return !f.local }
	if p.In != "" {
		w.pass(nftnl.PreRouting, all)
		w.route()
		w.pass(nftnl.Input, here)
		w.pass(nftnl.Forward, away)
		w.pass(nftnl.PostRouting, away)
	} else {
		w.route()
		w.pass(nftnl.Output, all)
		w.route() // with its present destination
		w.pass(nftnl.PostRouting, all)
		w.loop()
		w.pass(nftnl.PreRouting, here)
		w.pass(nftnl.Input, here)
	}
	var paths []Path
	for _, f := range w.flows {
		f.path.Local = f.local
		paths = append(paths, f.path)
	}
	return paths, w.err
}

type walker struct {
	Node
	flows []flow
	err   error
}

// route looks up the routes of the flows that continue.
func (w *walker) route() {
	for i := range w.flows {
		f := &w.flows[i]
		if f.done() || w.err != nil {
			continue
		}
		r := Route{Verdict: Accept}
		if w.Route == nil {
			r.Local = f.packet.Local(f.packet.Destination().Addr())
		} else if r, w.err = w.Route(f.packet); w.err != nil {
			return
		}
		f.local, f.packet.Out, f.path.Verdict = r.Local, r.Out, r.Verdict
		if r.Text != f.routed {
			f.routed = r.Text
			f.path.Steps = append(slices.Clip(f.path.Steps), Step{Rule: r.Text, Matched: true})
		}
	}
}

// loop lets packets that the node sends to itself arrive again. Their connections keep all translations.
func (w *walker) loop() {
	for i := range w.flows {
		if f := &w.flows[i]; f.local {
			f.packet.In, f.packet.Out, f.settled = "lo", "", true
		}
	}
}

// pass runs some of the flows through a hook.
func (w *walker) pass(hook uint32, which func(flow) bool) {
	for i := range w.flows {
		f := &w.flows[i]
		f.settled = f.settled && f.packet.In == "lo"
	}
	for _, b := range w.Bases {
		if b.Hook != hook || w.err != nil {
			continue
		}
		next := make([]flow, 0, len(w.flows))
		for _, f := range w.flows {
			if f.done() || !which(f) || b.NAT && f.settled {
				next = append(next, f)
				continue
			}
			f.packet.Untracked = f.packet.In != "lo" && b.effectivePriority() <= -200 && (hook == nftnl.PreRouting || hook == nftnl.Output) // NF_IP_PRI_CONNTRACK
			paths, err := b.At(f.packet)
			if err != nil {
				w.err = err
				return
			}
			for _, p := range paths {
				next = append(next, f.through(b, p))
			}
		}
		w.flows = next
	}
}

// through returns the flow after a path of a base chain.
func (f flow) through(b Base, p Path) flow {
	f.settled = f.settled || b.NAT && (p.Translated || p.Masquerade)
	if p.Translated {
		f.packet.Translated = p.To
	}
	f.packet.Mark = p.Mark
	for i := range p.Steps {
		p.Steps[i].Of = b.Of
	}
	p.Translated, p.Masquerade = p.Translated || f.path.Translated, p.Masquerade || f.path.Masquerade
	p.Chance *= f.path.Chance
	p.Steps = append(slices.Clip(f.path.Steps), p.Steps...)
	f.path = p
	return f
}
