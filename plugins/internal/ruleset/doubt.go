// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
)

// This file finds out whether another process removed or replaced rules, at little cost: nf_tables says how
// many commits there were and how many rules a chain has, legacy's tables have a size, and an audit reads one
// chain at a time. A reason for doubt stays until the kernel was read and written again.

const (
	// LookEvery is how often Look is called.
	LookEvery = 500 * time.Millisecond

	// MaxLooks is for how many looks another process may be at work on the tables before
	// what it removed is put back.
	MaxLooks = 4
)

// Doubt is why the kernel may not have what was observed; empty: no reason is known.
func (r *Rules[K]) Doubt() string { return r.doubt }

// Waits reports whether another process is at work, so that the last look found nothing out.
func (r *Rules[K]) Waits() bool {
	for _, s := range r.sizes {
		if s.looks > 0 {
			return true
		}
	}
	return r.looks > 0
}

// Look doubts the rules if other processes removed some of ours. It is called each LookEvery.
func (r *Rules[K]) Look(ctx context.Context) {
	switch r.Tool.Backend {
	case iptables.NFT:
		r.lookNFT(ctx)
	case iptables.Legacy:
		r.eachSize(r.compare)
		r.compareContents(ctx)
	}
}

// A foreign is what other processes have written.
type foreign struct {
	contents uint64 // a hash of legacy's tables, when they were looked at last; zero: this process has written since

	known uint32    // their commits, as Tool.Foreign counts them, after which nothing of ours was missing
	seen  uint32    // at the last look
	looks int       // at which they were others than known
	next  time.Time // when to look closer again, at the earliest
	owed  bool      // a comparison of the rules themselves, since others have committed something
	save  time.Time // when to do that, at the earliest

	// uses are of chains that more leads to than we know of, which have our rules.
	uses map[iptables.ID]uint32
}

// lookNFT looks closer when other processes have committed something, once they make a pause: one that
// empties tables does so in several steps, and would fail on what is put back between them.
func (r *Rules[K]) lookNFT(ctx context.Context) {
	f := &r.foreign
	if r.Tool.Hold == nil || !r.known || r.doubt != "" {
		return // not the writer, or it is all read again anyway
	}
	began := time.Now()
	if r.compareRules(ctx) {
		return
	}
	now, err := r.Tool.Foreign()
	if err != nil || now == f.known {
		return
	}
	paused := now == f.seen
	f.seen = now
	if f.looks++; !paused && f.looks < MaxLooks || began.Before(f.next) {
		return
	}
	r.Masquerade.Doubt()
	why, err := r.lost(ctx)
	if err != nil {
		why = err.Error()
	}
	if ctx.Err() != nil {
		return
	}
	r.doubt, f.known, f.looks, f.owed = why, now, 0, true
	f.next = time.Now().Add(min(50*time.Since(began), 3*time.Second)) // a fiftieth of a processor at most
}

// compareContents looks closer when legacy's tables say something else, which a size does not tell of a restored
// snapshot; and once after this process has written, for another one may have done so in the same moment.
func (r *Rules[K]) compareContents(ctx context.Context) {
	f, began := &r.foreign, time.Now()
	if r.Tool.Hold == nil || !r.known || r.doubt != "" || r.compareRules(ctx) || began.Before(f.next) {
		return
	}
	now, err := iptables.Contents(r.Family(), r.config.tables())
	if err == nil && now != f.contents {
		if f.contents != 0 {
			r.Masquerade.Doubt()
		}
		f.contents, f.owed = now, true
	}
	f.next = time.Now().Add(max(MaxLooks*LookEvery, 100*time.Since(began))) // a hundredth of a processor at most
}

// compareRules compares the rules in the kernel with the rules that were written, when a comparison is owed and due. It
// reports whether it compared.
func (r *Rules[K]) compareRules(ctx context.Context) bool {
	f, began := &r.foreign, time.Now()
	if !f.owed || began.Before(f.save) {
		return false
	}
	r.doubt, f.owed = r.replaced(ctx), ctx.Err() != nil
	f.save = time.Now().Add(100 * time.Since(began)) // a hundredth of a processor at most
	return true
}

// replaced returns which of our chains has other rules than were written; empty: none has. It reads the tables.
func (r *Rules[K]) replaced(ctx context.Context) string {
	found, err := r.Tool.SaveIf(ctx, r.config.reads, r.config.tables()...)
	switch {
	case ctx.Err() != nil:
		return ""
	case err != nil:
		return err.Error()
	}
	for id, text := range r.text {
		if rules, there := found[id]; !there || !slices.Contains(rules, iptables.Unread) && iptables.Join(rules) != text {
			return fmt.Sprintf("%s is not as it was written", id)
		}
	}
	return ""
}

// lost returns what of our rules is missing; empty: nothing. It reads the numbers of rules of all chains, the
// chains whose number is another than it should be, those in which our jumps stand, and those to which they
// lead. That rules of another were replaced by as many it cannot tell; replaced can.
func (r *Rules[K]) lost(ctx context.Context) (string, error) {
	uses, err := r.Tool.Uses(ctx)
	if err != nil {
		return "", err
	}
	want := make(map[iptables.ID]uint32, len(r.text))
	at, entries := make(map[iptables.ID][]iptables.Rule), make(map[iptables.ID]bool)
	for _, j := range r.jumps {
		at[j.At] = append(at[j.At], j.Rule)
		entry := iptables.ID{Table: j.At.Table, Chain: j.Rule.Target()}
		entries[entry] = true
		want[entry]++
	}
	for id, text := range r.text {
		for rule := range strings.Lines(text) {
			want[id]++
			want[iptables.ID{Table: id.Table, Chain: iptables.Rule(strings.TrimSuffix(rule, "\n")).Target()}]++
		}
	}
	for id, rules := range at {
		have, _, err := r.Tool.Find(ctx, id)
		if err != nil {
			return "", err
		}
		unsure := iptables.Tables{id: have}.Unsure(id) != ""
		for _, rule := range rules {
			if !unsure && !slices.Contains(have, rule) {
				return fmt.Sprintf("a jump was deleted from %s", id), nil
			}
		}
	}
	before := r.foreign.uses
	r.foreign.uses = make(map[iptables.ID]uint32)
	for id, text := range r.text {
		switch use, there := uses[id]; {
		case !there:
			return fmt.Sprintf("%s was deleted", id), nil
		case use == want[id] && !entries[id]:
		case use == before[id] && !entries[id]:
			r.foreign.uses[id] = use
		default:
			have, there, err := r.Tool.List(ctx, id)
			if err != nil && !errors.Is(err, iptables.ErrUnreadable) { // else another program wrote there
				return "", err
			}
			if !there || iptables.Join(have) != text {
				return fmt.Sprintf("%s is not as it was written", id), nil
			}
			r.foreign.uses[id] = use
		}
	}
	return "", nil
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
	if was.looks++; now != was.seen && was.looks < MaxLooks {
		was.seen = now
		r.sizes[table] = was
		return // another process is changing it
	}
	r.Masquerade.Doubt()
	r.doubt = iptables.Lost(r.Family(), table, was.ours, now, func(add func(iptables.ID, string)) {
		for id, text := range r.text {
			add(id, text)
		}
	}, r.jumps)
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
		if there, err := r.Tool.Exists(ctx, next.At, next.Rule); err == nil && !there && slices.Contains(r.jumps, next) {
			r.doubt = fmt.Sprintf("a jump is missing from %s", next.At)
		}
		return
	}
	want, ours := r.text[next.At]
	rules, there, err := r.Tool.List(ctx, next.At)
	if (err == nil || errors.Is(err, iptables.ErrUnreadable)) && ours && (!there || iptables.Join(rules) != want) {
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
