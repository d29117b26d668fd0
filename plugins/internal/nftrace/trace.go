// SPDX-License-Identifier: Apache-2.0

package nftrace

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/trace"
)

// A Tracer answers for one table, as it was when the Tracer was made.
type Tracer struct {
	chains map[string][]rule
	drops  map[string]bool // base chains of that policy
	bases  map[uint32][]base
	sets   map[string]*set
	draws  map[draw][]drawn
}

// A rule is its expressions as functions. One reports whether the rule goes on.
type rule []func(*walk) (bool, error)

// New makes a Tracer.
func New(table Table) *Tracer {
	t := &Tracer{
		chains: make(map[string][]rule), drops: make(map[string]bool), bases: make(map[uint32][]base),
		sets: make(map[string]*set), draws: make(map[draw][]drawn),
	}
	for name, elements := range table.Elements {
		t.sets[name] = newSet(elements)
	}
	for name, c := range table.Chains {
		all := make([]rule, len(c.Rules))
		for i, exprs := range c.Rules {
			for _, e := range exprs {
				all[i] = append(all[i], t.compile(e))
			}
		}
		t.chains[name], t.drops[name] = all, c.Drops
	}
	for _, at := range []uint32{nftnl.PreRouting, nftnl.Input, nftnl.Forward, nftnl.Output, nftnl.PostRouting} {
		t.bases[at] = table.bases(at)
	}
	return t
}

// Trace says what can become of p: one Path for each place where it may end, with the chance
// that it does. A protocol of "icmp" or "ipv6-icmp" is an echo request. If a rule is not
// understood, the error is an Unknown.
func (t *Tracer) Trace(p trace.Packet) ([]trace.Path, error) { return t.every(p, (*walk).run) }

// At says what can become of p in one base chain.
func (t *Tracer) At(p trace.Packet, chain string) ([]trace.Path, error) {
	return t.every(p, func(w *walk) error { return w.base(chain) })
}

// every takes a packet on each way that there is.
func (t *Tracer) every(p trace.Packet, way func(*walk) error) ([]trace.Path, error) {
	proto, known := protocols[p.Protocol]
	if !known {
		return nil, fmt.Errorf("trace %s: the protocol is not known", p)
	}
	var paths []trace.Path
	for choices := []choice(nil); ; {
		w := &walk{tracer: t, packet: p, proto: proto, in: p.In, to: p.Destination(), choices: choices}
		w.path = trace.Path{Verdict: trace.Accept, Translated: p.Translated.IsValid() && !p.Balanced, Chance: 1}
		w.meta = map[uint64][]byte{metaMark: word(p.Mark), metaPriority: word(0)}
		if err := way(w); err != nil {
			return nil, fmt.Errorf("trace %s: %w", p, err)
		}
		w.path.To, w.path.Mark = w.to, binary.NativeEndian.Uint32(w.meta[metaMark])
		paths = add(paths, w.path)
		if choices = next(w.choices); choices == nil {
			slices.SortFunc(paths, func(a, b trace.Path) int { return a.To.Compare(b.To) })
			return paths, nil
		}
	}
}

// add adds a path, or its chance to one that ends in the same way.
func add(paths []trace.Path, p trace.Path) []trace.Path {
	for i, o := range paths {
		if o.Verdict == p.Verdict && o.To == p.To && o.Translated == p.Translated && o.Mark == p.Mark && o.Masquerade == p.Masquerade {
			paths[i].Chance += p.Chance
			return paths
		}
	}
	return append(paths, p)
}

// A choice is one of several ways that are left to chance.
type choice struct{ taken, of int }

// next are the choices of the walk after the one with these; nil: there is none.
func next(choices []choice) []choice {
	for n := len(choices); n > 0; n-- {
		if c := &choices[n-1]; c.taken+1 < c.of {
			c.taken++
			return choices[:n]
		}
	}
	return nil
}

// A walk is one packet on one way.
type walk struct {
	tracer *Tracer
	packet trace.Packet
	proto  byte

	in     string // the interface that it came in by; empty: a process of the node sent it
	looped bool   // it left by the loopback device, and comes in again
	to     netip.AddrPort
	meta   map[uint64][]byte // what rules can change
	path   trace.Path

	regs    registers
	verdict *nftnl.Verdict // of the rule

	choices []choice
	asked   int
}

// choose takes one of several ways.
func (w *walk) choose(of int) int {
	if w.asked == len(w.choices) {
		w.choices = append(w.choices, choice{of: of})
	}
	w.asked++
	return w.choices[w.asked-1].taken
}

// run takes the packet from its first hook to its last. What the node sends to itself leaves,
// and comes in again.
func (w *walk) run() error {
	way := []uint32{nftnl.PreRouting}
	if w.in == "" {
		way = []uint32{nftnl.Output, nftnl.PostRouting}
	}
	if err := w.pass(way...); err != nil {
		return err
	}
	local := w.packet.Local(w.to.Addr())
	switch {
	case local && w.in == "":
		w.in, w.looped = "lo", true
		return w.pass(nftnl.PreRouting, nftnl.Input)
	case local:
		return w.pass(nftnl.Input)
	case w.in != "":
		return w.pass(nftnl.Forward, nftnl.PostRouting)
	}
	return nil
}

// pass takes the packet through hooks, as long as it is accepted. Where one chain has translated
// it, no other chain of nat at that hook is asked; and none where it comes in again.
func (w *walk) pass(hooks ...uint32) error {
	for _, at := range hooks {
		settled := w.looped
		for _, b := range w.tracer.bases[at] {
			nat := b.hook.Type == "nat"
			if w.path.Verdict != trace.Accept || nat && settled {
				continue
			}
			before := w.path
			if err := w.base(b.name); err != nil {
				return err
			}
			settled = settled || w.path.Translated != before.Translated || w.path.Masquerade != before.Masquerade
		}
	}
	return nil
}

// base walks a base chain, with its policy.
func (w *walk) base(name string) error {
	decided, err := w.chain(name, 0)
	if err == nil && !decided && w.tracer.drops[name] {
		w.path.Verdict = trace.Drop
		w.path.Steps = append(w.path.Steps, trace.Step{Chain: name, Rule: "policy drop", Matched: true})
	}
	return err
}

// deepest is how far chains may lead into one another: NFT_JUMP_STACK_SIZE.
const deepest = 16

// chain walks one chain, and reports whether the base chain is decided.
func (w *walk) chain(name string, depth int) (decided bool, err error) {
	rules, there := w.tracer.chains[name]
	if !there || depth >= deepest {
		return false, fmt.Errorf("chain %s is not there, or more than %d deep", name, deepest)
	}
	for i, r := range rules {
		v, err := w.rule(r)
		if err != nil {
			return false, &Unknown{Chain: name, Rule: i + 1, Why: err.Error()}
		}
		if v != nil {
			w.path.Steps = append(w.path.Steps, trace.Step{Chain: name, Number: i + 1, Matched: true})
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
			if w.path.Verdict != trace.Reject { // the rule answered for the packet
				w.path.Verdict = trace.Drop
			}
			return true, nil
		default:
			return false, &Unknown{Chain: name, Rule: i + 1, Why: fmt.Sprintf("the verdict %v", *v)}
		}
	}
	return false, nil
}

// rule takes the steps of a rule, until one does not match or there is a verdict. Registers are
// empty at its start.
func (w *walk) rule(r rule) (*nftnl.Verdict, error) {
	w.regs, w.verdict = registers{}, nil
	for _, step := range r {
		on, err := step(w)
		if err != nil || !on || w.verdict != nil {
			return w.verdict, err
		}
	}
	return nil, nil
}

// end has a rule end with a verdict.
func (w *walk) end(v nftnl.Verdict) (bool, error) {
	w.verdict = &v
	return true, nil
}

// unknown is a step that this package cannot take.
func unknown(format string, args ...any) func(*walk) (bool, error) {
	err := fmt.Errorf(format, args...)
	return func(*walk) (bool, error) { return false, err }
}
