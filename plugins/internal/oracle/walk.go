// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"cmp"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// A Base is one base chain at one of the kernel's hooks, whatever program made it.
type Base struct {
	Of       string // what has it, for people: "nftables, table inet mine"
	Hook     uint32 // NF_INET_*
	Priority int32
	NAT      bool
	Age      [2]uint64 // the handles of its table and of itself in nf_tables, which grow; zero: legacy iptables
	At       func(Packet) ([]Path, error)
}

// called returns the priority at which the kernel calls a base chain. All chains of nat at a hook are called by
// nf_nat at its own priority; theirs only say in which order (net/netfilter/nf_nat_core.c).
func (b Base) called() int32 {
	switch {
	case !b.NAT:
		return b.Priority
	case b.Hook == nftnl.Input || b.Hook == nftnl.PostRouting:
		return 100 // NF_IP_PRI_NAT_SRC
	}
	return -100 // NF_IP_PRI_NAT_DST
}

// Sort sorts base chains as the kernel calls them. Of two with the same priority it calls the one first that was
// registered later (nf_hook_entries_grow). The kernel does not say when that was: the table that was made later,
// and in one table the chain that was made later, is taken for it, and legacy iptables for the oldest.
func Sort(bases []Base) {
	slices.SortStableFunc(bases, func(a, b Base) int {
		return cmp.Or(cmp.Compare(a.called(), b.called()), cmp.Compare(a.Priority, b.Priority), slices.Compare(b.Age[:], a.Age[:]))
	})
}

// A Node is what packets come through.
type Node struct {
	Bases []Base // sorted

	// Route asks for the route of a packet as it is by now. Nil: what goes to one of its Local addresses is
	// local, and all else is forwarded.
	Route func(Packet) (Route, error)
}

// A Route is what the kernel does with a packet to a destination.
type Route struct {
	Local   bool
	Out     string  // the interface by which it leaves
	Verdict Verdict // Accept: it goes on
	Text    string  // for people; empty: nothing is to be said
}

// A flow is a packet on one of its ways through a node.
type flow struct {
	packet  Packet
	path    Path
	local   bool // it is for the node itself
	settled bool // no other chain of nat at this hook is asked
	routed  string
}

func (f flow) done() bool { return f.path.Verdict != Accept || f.path.Then != "" }

// Walk takes a packet from its first hook to its last, on each way that it can go.
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
		w.route() // as it is translated by now
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

// route asks for the route of each flow that goes on.
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

// loop has what the node sends to itself come in again. Its connection has all of its translations.
func (w *walker) loop() {
	for i := range w.flows {
		if f := &w.flows[i]; f.local {
			f.packet.In, f.packet.Out, f.settled = "lo", "", true
		}
	}
}

// pass takes some of the flows through a hook.
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
			f.packet.Untracked = f.packet.In != "lo" && b.called() <= -200 && (hook == nftnl.PreRouting || hook == nftnl.Output) // NF_IP_PRI_CONNTRACK
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

// through returns the flow behind a base chain, in which it took a path.
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
	p.Remembered = append(slices.Clip(f.path.Remembered), p.Remembered...)
	p.Steps = append(slices.Clip(f.path.Steps), p.Steps...)
	f.path = p
	return f
}
