// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"context"
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
)

// This file finds out whether another process removed rules, at little cost: nft's kernel
// says which process deleted what, legacy's tables have a size, and an audit reads one chain at a time.
// A reason for doubt stays until the kernel was read and written again.

// entrances are the built-in chains in which our jumps may stand.
var entrances = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// Matters is for iptables.Losses: it reports whether a loss may be one of a dataplane's with
// these chains: one of its chains, one in which it has jumps, or a whole table. Another proxy
// that is removed takes thousands of others along.
func Matters(ours func(iptables.ID) bool) func(iptables.Gone) bool {
	return func(g iptables.Gone) bool {
		id := g.ID
		return masquerade.Concerns(id) || slices.Contains(tables, id.Table) && (id.Chain == "" || ours(id) || slices.Contains(entrances, id.Chain))
	}
}

// Doubt is why the kernel may not have what was observed; empty: no reason is known.
func (r *Rules[K]) Doubt() string { return r.doubt }

// Look doubts the rules if other processes removed some of ours: of nft, l has heard it; of
// legacy, the sizes of the tables tell.
func (r *Rules[K]) Look(ctx context.Context, l *iptables.Losses) {
	for _, c := range l.Take(r.Family()) {
		r.hear(ctx, c)
	}
	r.eachSize(r.compare)
}

// hear doubts the rules if c, which another process did, removed some of ours.
func (r *Rules[K]) hear(ctx context.Context, c iptables.Commit) {
	if c.Missed {
		r.doubt = "more was changed than the kernel could tell"
		r.Masquerade.Doubt()
		return
	}
	for _, gone := range c.Gone {
		if gone.Family == r.Family() && masquerade.Concerns(gone.ID) {
			r.Masquerade.Doubt()
		}
		if gone.Family != r.Family() || r.doubt != "" || !slices.Contains(r.config.tables(), gone.ID.Table) {
			continue
		}
		switch id := gone.ID; {
		case id.Chain == "":
			r.doubt = fmt.Sprintf("%s deleted the table %s", c.Program, id.Table)
		case r.config.Ours(id):
			r.doubt = fmt.Sprintf("%s deleted from %s", c.Program, id)
		default:
			r.ask(ctx, id, c.Program)
		}
	}
}

// ask looks whether the jumps that should be at id are there. Where that cannot be seen they
// may not be: what was heard is not heard again.
func (r *Rules[K]) ask(ctx context.Context, id iptables.ID, program string) {
	if !slices.ContainsFunc(r.jumps, func(j iptables.Jump) bool { return j.At == id }) {
		return
	}
	rules, _, err := r.Tool.List(ctx, id)
	for _, j := range r.jumps {
		if j.At == id && (err != nil || !slices.Contains(rules, j.Rule)) {
			r.doubt = fmt.Sprintf("%s deleted a jump from %s", program, id)
		}
	}
}

// eachSize calls f with how large each of legacy's tables is.
func (r *Rules[K]) eachSize(f func(table string, now iptables.Size)) {
	if r.Tool.Backend != iptables.Legacy {
		return
	}
	for _, table := range r.config.tables() {
		if size, err := iptables.TableSize(r.Family(), table); err == nil {
			f(table, size)
		}
	}
}

// A sized says how large one of legacy's tables is.
type sized struct {
	ours  iptables.Size // as we left it
	seen  iptables.Size // when it was looked at last
	looks int           // how often it was another than ours
}

// compare looks closer when a table has another size, once it keeps that: rules of ours may
// have been removed. What is doubted already is read again, whole.
func (r *Rules[K]) compare(table string, now iptables.Size) {
	was := r.sizes[table]
	if now == was.ours || r.doubt != "" {
		return
	}
	if was.looks++; now != was.seen && was.looks < iptables.MaxLooks {
		was.seen = now
		r.sizes[table] = was
		return // another process is changing it
	}
	r.Masquerade.Doubt()
	r.doubt = iptables.Lost(r.Family(), table, was.ours, now, r.text, r.jumps)
	r.sizes[table] = sized{ours: now, seen: now}
}

// measure notes how large the tables are once they have what they should.
func (r *Rules[K]) measure() {
	r.eachSize(func(table string, now iptables.Size) { r.sizes[table] = sized{ours: now, seen: now} })
}

// Audit reads one chain of ours, or asks for one jump, and compares. Call by call it goes
// through all of them.
func (r *Rules[K]) Audit(ctx context.Context) {
	if r.doubt != "" {
		return
	}
	if len(r.audit) == 0 {
		r.audit = r.agenda()
	}
	if len(r.audit) == 0 {
		return
	}
	next := r.audit[0]
	r.audit = r.audit[1:]
	if next.Rule != "" {
		if there, err := r.Tool.Exists(next.At, next.Rule); err == nil && !there && slices.Contains(r.jumps, next) {
			r.doubt = fmt.Sprintf("a jump is missing from %s", next.At)
		}
		return
	}
	want, ours := r.text[next.At]
	rules, there, err := r.Tool.List(ctx, next.At)
	if err == nil && ours && (!there || iptables.Join(rules) != want) {
		r.doubt = fmt.Sprintf("%s is not as it was written", next.At)
	}
}

// agenda is what an audit goes through: the jumps, and chains as jumps without a rule.
func (r *Rules[K]) agenda() []iptables.Jump {
	all := make([]iptables.Jump, 0, len(r.jumps)+len(r.text))
	for id := range r.text {
		all = append(all, iptables.Jump{At: id})
	}
	slices.SortFunc(all, iptables.Jump.Compare)
	return append(slices.Clone(r.jumps), all...)
}
