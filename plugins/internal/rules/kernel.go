// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/plugins/internal/tree"
)

// A kernel implements reconcile.Kernel.
type kernel struct{ *Rules }

var _ reconcile.Kernel[Key, string] = kernel{}

type (
	change = reconcile.Change[Key, string]
	batch  = reconcile.Batch[Key, string]
)

// List reads the kernel's tables.
func (k kernel) List(ctx context.Context) (map[Key]string, error) {
	r := k.Rules
	r.known = false
	r.Masquerade.Doubt()
	done, err := r.beginReading()
	if err != nil {
		return nil, fmt.Errorf("read %s tables: %w", r.Family(), err)
	}
	found, err := r.Tool.SaveIf(ctx, r.reads, r.tables()...)
	if err != nil {
		return nil, fmt.Errorf("read %s tables: %w", r.Family(), err)
	}
	if r.Reading != nil {
		if err := r.Reading(found); err != nil {
			return nil, err
		}
	}
	done()
	listed := r.adopt(found)
	r.known, r.read = true, true
	return listed, nil
}

// Foreign returns why the rules may differ from what was written. With unsure other processes are changing the
// tables, and the rules were not compared.
func (k kernel) Foreign(ctx context.Context) (why string, unsure bool) {
	k.Look(ctx)
	return k.Doubted()
}

// adopt sets the state from the tables that were read, and returns their entries.
func (r *Rules) adopt(found iptables.Tables) map[Key]string {
	r.forget()
	listed := make(map[Key]string, len(found))
	for id, rules := range found {
		if !r.IsOurs(id) {
			r.adoptOther(found, id)
			continue
		}
		text := iptables.Join(rules)
		if r.IsFixed(id) {
			r.found[id] = text
		}
		r.count[id.Table] += len(rules)
		in := slices.IndexFunc(r.Trees, func(t Tree) bool { return t.Has(id) })
		if in < 0 {
			listed[chainKey(id)] = text
			continue
		}
		r.text[id] = text
		for _, rule := range rules {
			if key, rest, ok := r.Trees[in].Read(rule); ok && (key.Port == 0) == r.Trees[in].Whole { // otherwise the rule is beside the tree
				r.Trees[in].Put(r.treeEntry(in, key, rest))
				k, v := r.entryKey(in, key, rest)
				listed[k] = v
			}
		}
	}
	for id := range r.held { // a foreign rule leads to the chain, so it cannot be removed
		if listed[chainKey(id)] == "" && !slices.ContainsFunc(r.fixed, func(c iptables.Chain) bool { return c.ID == id }) {
			delete(listed, chainKey(id))
		}
	}
	for at, text := range r.present {
		if r.unread[at] == "" {
			listed[jumpsKey(at)] = text
		}
	}
	r.findDamage(listed)
	return listed
}

// adoptOther records which rules of a foreign chain lead to our chains.
func (r *Rules) adoptOther(found iptables.Tables, at iptables.ID) {
	if why := found.Unsure(at); why != "" || found.Has(at, iptables.Unread) {
		r.unread[at] = why
	}
	for _, rule := range found[at] {
		to := iptables.ID{Table: at.Table, Chain: rule.Target()}
		switch {
		case !r.IsOurs(to):
		case iptables.Jump{At: at, Rule: rule}.Listed():
			r.present[at] += string(rule) + "\n"
		default:
			r.held[to] = true
		}
	}
}

// findDamage adds to listed the chains of trees that differ from what their entries require. While the rules
// beside a tree in its root are unknown, a root may have any others.
func (r *Rules) findDamage(listed map[Key]string) {
	r.collect()
	for id := range r.text {
		if _, is := r.changed[id]; is {
			continue
		}
		if r.held[id] && r.text[id] == "" { // held by a foreign rule, so it cannot be removed
			delete(r.text, id)
			continue
		}
		r.changed[id] = composed{gone: true}
	}
	for id, c := range r.changed {
		switch have, there := r.text[id]; {
		case there && !c.gone && have == c.text:
			delete(r.changed, id)
		case there && c.level == 0 && r.ends == nil && !c.gone && strings.Contains(have, c.text):
		case there || len(r.text) > 0:
			listed[Key{kind: ofDamage, chain: id}] = have
		}
	}
}

// collect composes the chains of trees whose text may have changed since the last call.
func (r *Rules) collect() {
	for i, t := range r.Trees {
		changed, removed := t.Changes()
		for _, c := range changed {
			if c.Level == 0 && r.ends != nil {
				c.Rules = slices.Concat(r.ends[i].head, c.Rules, r.ends[i].tail)
			}
			r.changed[c.ID] = composed{level: c.Level, text: iptables.Join(c.Rules)}
		}
		for _, id := range removed {
			r.changed[id] = composed{gone: true}
		}
	}
}

// Apply writes a batch, in several runs if it is large. The program commits the blocks of a script one by one,
// so after an error the state of the kernel is unknown.
func (k kernel) Apply(ctx context.Context, b batch) (refused map[Key]error, err error) {
	r, there := k.Rules, k.count["nat"]
	plan := r.compose(b)
	if len(plan) > 0 {
		r.asRead = nil
	}
	r.Stats.write(plan)
	if err := plan.Write(ctx, r.Tool, r.Rank, there); err != nil {
		r.known = false
		r.Stats.Failures++
		if !r.read {
			r.Stats.Partial++
		}
		line := new(iptables.LineError)
		if ctx.Err() == nil && errors.As(err, &line) {
			return r.refusedBy(line, b), &frame.Refused{Err: err}
		}
		return nil, err
	}
	for table, more := range r.added {
		r.count[table] += more
	}
	if r.read {
		r.doubt = ""
	}
	if r.read || len(plan) > 0 {
		r.recordWritten()
	}
	r.read = false
	return nil, nil
}

// WriteBeside writes a plan about rules of other programs. After an error the state of the kernel is unknown.
func (r *Rules) WriteBeside(ctx context.Context, plan iptables.Plan) error {
	r.asRead = nil
	if err := plan.Write(ctx, r.Tool, r.Rank, r.count["nat"]); err != nil {
		r.known = false
		return err
	}
	r.recordWritten()
	return nil
}

// refusedBy returns the changes to which a line belongs that the program refused.
func (r *Rules) refusedBy(line *iptables.LineError, b batch) map[Key]error {
	refused := make(map[Key]error)
	for _, phase := range b.Phases {
		for _, c := range phase {
			is := c.Key.chain == line.Chain
			if c.Key.kind == ofEntry {
				t := r.Trees[c.Key.in]
				is = t.Has(line.Chain) && strings.HasSuffix(line.Line, " "+string(t.Line(r.entry(c))))
			}
			if is {
				refused[c.Key] = line
			}
		}
	}
	return refused
}

// entry returns the entry of a tree that a change adds or removes.
func (r *Rules) entry(c change) tree.Entry {
	if r.Trees[c.Key.in].Shared {
		return r.treeEntry(c.Key.in, c.Key.key, c.Key.rule)
	}
	return r.treeEntry(c.Key.in, c.Key.key, iptables.Rule(c.New))
}

// treeEntry returns the entry of a tree with a key and a rule.
func (r *Rules) treeEntry(in int, k tree.Key, rule iptables.Rule) tree.Entry {
	e := tree.Entry{Key: k, Rule: rule}
	if to := (iptables.ID{Table: r.Trees[in].Root().Table, Chain: target(string(rule))}); r.IsOurs(to) {
		e.Behind = r.Rank(iptables.Chain{ID: to})
	}
	return e
}

// compose returns the blocks of a batch, and updates the state as if they were written.
func (r *Rules) compose(b batch) iptables.Plan {
	clear(r.added)
	var plan iptables.Plan
	for _, table := range tableOf {
		plan = append(plan, iptables.Block{Table: table})
	}
	for phase := range plan {
		if phase < len(b.Phases) {
			for _, c := range b.Phases[phase] {
				r.change(c, &plan[phase], &plan[filterRemoves])
			}
		}
		r.composeTrees(&plan[phase])
		slices.SortFunc(plan[phase].Whole, func(a, b iptables.Chain) int { return a.ID.Compare(b.ID) })
		slices.SortFunc(plan[phase].Remove, iptables.ID.Compare)
		slices.SortStableFunc(plan[phase].Insert, func(a, b iptables.Jump) int {
			return slices.Index(r.jumps, a) - slices.Index(r.jumps, b)
		})
	}
	for _, id := range slices.Concat(plan[natChanges].Remove, plan[filterRemoves].Remove) {
		if with, ok := r.Companions[id]; ok {
			plan = append(plan, iptables.Block{Table: with.Table, Remove: []iptables.ID{with}})
		}
	}
	return slices.DeleteFunc(plan, iptables.Block.Empty)
}

// change applies a change to the trees, or adds it to the block into. Deletions of our jumps in filter are
// added to last.
func (r *Rules) change(c change, into, last *iptables.Block) {
	switch c.Key.kind {
	case ofEntry:
		if c.Op == reconcile.Remove {
			r.Trees[c.Key.in].Drop(c.Key.key)
		} else {
			r.Trees[c.Key.in].Put(r.entry(c))
		}
	case ofJumps:
		r.changeJumps(c, into, last)
	case ofChain:
		r.write(c.Key.chain, composed{text: c.New, gone: c.Op == reconcile.Remove}, c.Old, into)
	}
}

// write adds to a block what changes a chain from had to c.
func (r *Rules) write(id iptables.ID, c composed, had string, into *iptables.Block) {
	r.added[id.Table] += lines(c.text) - lines(had)
	switch {
	case c.gone && !r.held[id]:
		into.Remove = append(into.Remove, id)
	case !c.gone || had != "":
		into.Whole = append(into.Whole, iptables.Chain{ID: id, Rules: iptables.Split(c.text), Level: c.level})
	}
}

// composeTrees adds to a block the chains of trees in its table whose text differs from the kernel's.
func (r *Rules) composeTrees(into *iptables.Block) {
	r.collect()
	for id, c := range r.changed {
		if id.Table != into.Table {
			continue
		}
		delete(r.changed, id)
		switch had, there := r.text[id]; {
		case c.gone && !there, !c.gone && there && had == c.text:
		case c.gone:
			r.write(id, c, had, into)
			delete(r.text, id)
		default:
			r.write(id, c, had, into)
			r.text[id] = c.text
		}
	}
}

// changeJumps changes the jumps at a built-in chain. It keeps the longest common end and replaces the jumps
// above it. Jumps of kube-proxy are deleted before the chains that they lead to change, ours in filter last.
func (r *Rules) changeJumps(c change, into, last *iptables.Block) {
	at := c.Key.chain
	want := iptables.Split(c.New)
	var stay []iptables.Rule
	for _, rule := range iptables.Split(r.present[at]) {
		j := iptables.Jump{At: at, Rule: rule}
		switch {
		case slices.Contains(want, rule):
			stay = append(stay, rule)
		case at.Table == last.Table && slices.Contains(r.own, j):
			last.Delete = append(last.Delete, j)
		default:
			into.Delete = append(into.Delete, j)
		}
	}
	end := 0
	for end < min(len(stay), len(want)) && stay[len(stay)-1-end] == want[len(want)-1-end] {
		end++
	}
	for _, rule := range stay[:len(stay)-end] {
		into.Delete = append(into.Delete, iptables.Jump{At: at, Rule: rule})
	}
	for _, rule := range slices.Backward(want[:len(want)-end]) {
		into.Insert = append(into.Insert, iptables.Jump{At: at, Rule: rule})
	}
	if r.present[at] = c.New; c.Op == reconcile.Remove {
		delete(r.present, at)
	}
}
