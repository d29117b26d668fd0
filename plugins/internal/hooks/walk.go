// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/nftrace"
	"github.com/pointsman/pointsman/plugins/internal/trace"
	"github.com/pointsman/pointsman/sdk"
)

// A stage is one base chain, whatever program made it.
type stage struct {
	table    string // it is in, for people: "nftables, table inet mine"
	chain    string
	at       uint32 // the hook: NF_INET_*
	priority int32
	nat      bool
	balances bool // it is IPVS, and has no rules
	walk     func(trace.Packet) ([]trace.Path, error)
}

// A route is what the kernel does with a packet to a destination.
type route struct {
	local   bool
	out     string        // the interface by which it leaves, if it does
	verdict trace.Verdict // Accept: it goes on
	why     string        // it does not
}

// A kernel is all that packets come through.
type kernel struct {
	stages []stage // in the order in which packets come to them
	ipvs   balancer
	blind  func(device string) error                          // why it cannot be told what happens at an interface
	route  func(p trace.Packet, to netip.Addr) (route, error) // of a packet as it is by now
}

func (k *kernel) sort() {
	slices.SortStableFunc(k.stages, func(a, b stage) int { return cmp.Compare(a.priority, b.priority) })
}

// A flow is a packet on one of its ways.
type flow struct {
	trace.Packet
	verdict    trace.Verdict
	share      float64
	masquerade bool
	settled    bool // no other chain of nat at this hook is asked
	local      bool // it is for the node itself
	rules      []string

	hook  uint32 // the last one that it came to: NF_INET_* and one; zero: none
	moved string // the chain of nat whose rule translated it

	balanced bool   // IPVS has had it, and looks at it no more
	resent   bool   // IPVS sends it to another machine: it leaves the hook that it is at
	before   uint32 // its mark as IPVS sent it
}

// decided adds what decided to the rules.
func (f *flow) decided(by string) { f.rules = append(slices.Clip(f.rules), by) }

func (f flow) accepted() bool { return f.verdict == trace.Accept }

// then is the flow behind a stage.
func (f flow) then(s stage, p trace.Path) flow {
	moved := s.nat && p.Translated && p.To != f.Destination()
	if moved || s.nat && p.Masquerade {
		f.settled = true
	}
	if moved && len(p.Steps) > 0 {
		f.moved = p.Steps[len(p.Steps)-1].Chain
	}
	if p.Translated {
		f.Translated = p.To
	}
	f.verdict, f.Mark = p.Verdict, p.Mark
	f.share *= p.Chance
	f.masquerade = f.masquerade || p.Masquerade
	f.rules = slices.Clip(f.rules)
	for _, step := range p.Steps {
		if step.Matched {
			f.rules = append(f.rules, s.place(step))
		}
	}
	return f
}

// early reports whether packets come to a stage before conntrack (NF_IP_PRI_CONNTRACK).
func (s stage) early() bool {
	return s.priority <= -200 && (s.at == nftnl.PreRouting || s.at == nftnl.Output)
}

// place names a rule as an operator finds it.
func (s stage) place(step trace.Step) string {
	if step.Number == 0 {
		return fmt.Sprintf("%s, chain %s: %s", s.table, step.Chain, step.Rule)
	}
	text := fmt.Sprintf("%s, chain %s, rule %d", s.table, step.Chain, step.Number)
	if step.Rule != "" {
		text += ": " + step.Rule
	}
	return text
}

// unknown is an error that says where something is not understood.
type unknown struct{ why string }

func (u *unknown) Error() string { return u.why }

func unknownf(format string, args ...any) error { return &unknown{fmt.Sprintf(format, args...)} }

// unclear is why a stage cannot be walked.
func (s stage) unclear(err error) error {
	var rule *trace.Unknown
	var expr *nftrace.Unknown
	switch {
	case errors.As(err, &rule):
		return unknownf("%s, chain %s: the rule %q: %v", s.table, rule.Chain.Chain, rule.Rule, rule.Why)
	case errors.As(err, &expr):
		return unknownf("%s, %v", s.table, expr)
	}
	return unknownf("%s: %v", s.table, err)
}

// pass takes flows through a hook.
func (k *kernel) pass(flows []flow, at uint32) ([]flow, error) {
	for i := range flows {
		flows[i].settled = false
	}
	return k.through(flows, at)
}

func (k *kernel) through(flows []flow, at uint32) ([]flow, error) {
	for _, s := range k.stages {
		if s.at != at {
			continue
		}
		next := make([]flow, 0, len(flows))
		for _, f := range flows {
			if !f.accepted() || f.resent || s.nat && f.settled || s.balances && f.balanced {
				next = append(next, f)
				continue
			}
			if s.balances {
				some, err := k.balance(f)
				if err != nil {
					return nil, err
				}
				next = append(next, some...)
				continue
			}
			f.hook = at + 1
			f.Untracked = f.In != "lo" && !f.balanced && s.early()
			paths, err := s.walk(f.Packet)
			if err != nil {
				return nil, s.unclear(err)
			}
			for _, p := range paths {
				next = append(next, f.then(s, p))
			}
		}
		flows = next
	}
	return flows, nil
}

// trace follows a packet to all of its ends.
func (k *kernel) trace(p trace.Packet) (flows []flow, err error) {
	flows = []flow{{Packet: p, verdict: trace.Accept, share: 1}}
	if p.In == "" {
		return k.sent(flows)
	}
	if err := k.blind(p.In); err != nil {
		return nil, err
	}
	if flows, err = k.pass(flows, nftnl.PreRouting); err != nil {
		return nil, err
	}
	return k.routed(flows)
}

// sent takes what a process of the node sends.
func (k *kernel) sent(flows []flow) (_ []flow, err error) {
	if flows, err = k.direct(flows); err != nil {
		return nil, err
	}
	if flows, err = k.each(flows, nftnl.Output, anyFlow); err != nil {
		return nil, err
	}
	sent, flows, err := k.resend(flows)
	if err != nil {
		return nil, err
	}
	if flows, err = k.direct(flows); err != nil { // as it is translated by now
		return nil, err
	}
	if flows, err = k.each(append(flows, sent...), nftnl.PostRouting, anyFlow); err != nil {
		return nil, err
	}
	for i, f := range flows {
		if f.local && f.accepted() {
			flows[i].In, flows[i].Out, flows[i].settled = "lo", "", true // its connection has all of its translations
		}
	}
	for _, at := range []uint32{nftnl.PreRouting, nftnl.Input} {
		looped, gone := split(flows, func(f flow) bool { return f.local })
		if looped, err = k.through(looped, at); err != nil {
			return nil, err
		}
		flows = append(gone, looped...)
	}
	sent, flows, err = k.resend(flows)
	if err == nil {
		sent, err = k.through(sent, nftnl.PostRouting)
	}
	return append(flows, sent...), err
}

// routed takes what has come in to where it is to go.
func (k *kernel) routed(flows []flow) (_ []flow, err error) {
	if flows, err = k.direct(flows); err != nil {
		return nil, err
	}
	if flows, err = k.each(flows, nftnl.Input, func(f flow) bool { return f.local }); err != nil {
		return nil, err
	}
	sent, flows, err := k.resend(flows)
	if err != nil {
		return nil, err
	}
	forwarded := func(f flow) bool { return !f.local }
	if flows, err = k.each(flows, nftnl.Forward, forwarded); err != nil {
		return nil, err
	}
	return k.each(append(flows, sent...), nftnl.PostRouting, forwarded)
}

func anyFlow(flow) bool { return true }

// each takes some of the flows through a hook.
func (k *kernel) each(flows []flow, at uint32, which func(flow) bool) ([]flow, error) {
	some, others := split(flows, which)
	some, err := k.pass(some, at)
	return append(others, some...), err
}

func split(flows []flow, which func(flow) bool) (some, others []flow) {
	for _, f := range flows {
		if which(f) {
			some = append(some, f)
		} else {
			others = append(others, f)
		}
	}
	return some, others
}

// direct asks for the route of each flow that goes on.
func (k *kernel) direct(flows []flow) ([]flow, error) {
	for i := range flows {
		f := &flows[i]
		if !f.accepted() {
			continue
		}
		r, err := k.route(f.Packet, f.Destination().Addr())
		if err != nil {
			return nil, err
		}
		f.local, f.Out, f.verdict = r.local, r.out, r.verdict
		if !f.accepted() {
			f.decided(r.why)
			continue
		}
		if !r.local {
			if err := k.blind(r.out); err != nil {
				return nil, err
			}
		}
	}
	return flows, nil
}

// withRules is how many ways say which rules decided.
const withRules = 16

// traced is what flows come to: those that end in the same way are one.
func traced(flows []flow) (t sdk.Traced) {
	type end struct {
		verdict    trace.Verdict
		to         netip.AddrPort
		masquerade bool
	}
	at := make(map[end]int)
	for _, f := range flows {
		e := end{f.verdict, f.Destination(), f.masquerade && f.accepted()}
		i, known := at[e]
		if !known {
			i, at[e] = len(t.Ways), len(t.Ways)
			t.Ways = append(t.Ways, sdk.Way{Verdict: verdicts[e.verdict], To: e.to, Masquerade: e.masquerade})
			if i < withRules {
				t.Ways[i].Rules = f.rules
			}
		}
		t.Ways[i].Share += f.share
	}
	slices.SortStableFunc(t.Ways, func(a, b sdk.Way) int { return a.To.Compare(b.To) })
	return t
}

var verdicts = map[trace.Verdict]sdk.Verdict{trace.Accept: sdk.Forward, trace.Drop: sdk.Drop, trace.Reject: sdk.Reject}
