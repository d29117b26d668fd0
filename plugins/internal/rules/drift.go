// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
)

// This file detects at little cost whether another process removed or replaced rules. nf_tables reports the
// number of commits and the number of rules of a chain, legacy tables have a size, and an audit reads one chain
// at a time. A rule that replaces another one is found only by reading all rules: for nft after a commit of
// another process, for legacy every compareEvery, because the size may stay the same. A doubt stays until the
// kernel was read and written again.

const (
	// LookEvery is the interval at which the caller calls Look.
	LookEvery = 500 * time.Millisecond

	// MaxLooks is the number of looks for which another process may keep changing the tables before removed
	// rules are restored.
	MaxLooks = 4

	// compareEvery is the interval at which legacy's rules are compared with what was written.
	compareEvery = 30 * time.Second
)

// A Drift detects changes by other processes to the rules of one family.
type Drift struct {
	tool   *iptables.Tool
	tables []string
	reads  func(iptables.ID) bool                   // reports whether a table with this chain is read
	each   func(add func(id iptables.ID, t string)) // calls add with the chains that the kernel should have
	leads  func() []iptables.Jump                   // returns the jumps that the kernel should have
	shared func()                                   // called when chains that all modes share may have changed

	doubt  string               // why the rules may differ from what was written; empty: no doubt
	asRead *iptables.Generation // generation of the tables at the last reading; nil: this process has written since
	agenda []audited            // remaining audits of this round

	checked iptables.Generation // the result of Tool.Foreign when none of our rules was missing
	seen    iptables.Generation // the result of Tool.Foreign at the last look
	looks   int                 // number of looks since it differed from checked
	next    time.Time           // earliest time of the next close look
	owed    bool                // rules must be compared, because others have committed to nf_tables
	save    time.Time           // earliest time of the next comparison

	// uses has the use counts of chains whose count is unexpected (foreign rules lead there) but whose rules
	// are ours.
	uses map[iptables.ID]uint32
}

// newDrift returns a Drift for tables. each calls its argument with the chains that the kernel should have, and
// jumps returns the jumps to them.
func newDrift(tool *iptables.Tool, tables []string, each func(func(iptables.ID, string)), jumps func() []iptables.Jump, shared func()) Drift {
	return Drift{tool: tool, tables: tables, each: each, leads: jumps, shared: shared}
}

// Doubt returns why the rules may differ from what was written, or "".
func (d *Drift) Doubt() string { return d.doubt }

// Waits reports whether another process is changing the tables, so that the last look had no result.
func (d *Drift) Waits() bool { return d.looks > 0 }

// Doubted returns Doubt. If that is empty, unsure is the result of Waits.
func (d *Drift) Doubted() (why string, unsure bool) { return d.doubt, d.doubt == "" && d.Waits() }

// beginReading prepares a reading of the tables. Writes of other processes from now on count as changes. The
// caller calls done after the reading.
func (d *Drift) beginReading() (done func(), err error) {
	d.asRead = nil
	generation, unstamped := d.tool.Generation(d.tables...)
	if d.tool.Backend == iptables.NFT && d.tool.Hold != nil {
		if d.checked, err = d.tool.Foreign(d.tables...); err != nil {
			return nil, err
		}
	}
	d.looks, d.owed, d.uses = 0, false, nil
	if d.tool.Backend == iptables.Legacy {
		d.save = time.Now().Add(compareEvery)
	}
	return func() {
		if unstamped == nil {
			d.asRead = &generation
		}
	}, nil
}

// isUnchanged reports whether no process has written since the last reading, as far as the kernel can tell.
func (d *Drift) isUnchanged() bool {
	if d.asRead == nil {
		return false
	}
	now, err := d.tool.Generation(d.tables...)
	return err == nil && now == *d.asRead
}

// beginWriting records that this process writes.
func (d *Drift) beginWriting() { d.asRead = nil }

// recordWritten records that the kernel has what it should. Own writes change the size of legacy tables, so the size
// is read again. Commits of other processes to nf_tables are counted separately.
func (d *Drift) recordWritten() {
	if d.tool.Backend == iptables.Legacy {
		if now, err := d.tool.Foreign(d.tables...); err == nil {
			d.checked, d.looks = now, 0
		}
	}
}

// Look checks whether other processes removed some of our rules, and records a doubt if so. It is called every
// LookEvery while the expected rules are known. After a change by others it waits for a pause before it looks
// closer: a process that empties tables does so in several steps, and would fail on rules that are restored
// between them.
func (d *Drift) Look(ctx context.Context) {
	if d.tool.Hold == nil || d.doubt != "" {
		return // not the writer, or everything is read again anyway
	}
	began := time.Now()
	if d.compareRules(ctx) {
		return
	}
	now, err := d.tool.Foreign(d.tables...)
	if err != nil || now == d.checked {
		return
	}
	paused := now == d.seen
	d.seen = now
	if d.looks++; !paused && d.looks < MaxLooks || began.Before(d.next) {
		return
	}
	d.shared()
	why := ""
	if d.tool.Backend == iptables.Legacy {
		why = d.findReplaced(ctx)
	} else if why, err = d.findLost(ctx); err != nil {
		why = err.Error()
	}
	if ctx.Err() != nil {
		return
	}
	d.doubt, d.checked, d.looks, d.owed = why, now, 0, d.tool.Backend == iptables.NFT
	d.next = time.Now().Add(min(50*time.Since(began), 3*time.Second)) // use at most 2% of a CPU
}

// compareRules compares the rules in the kernel with those that were written, if that is owed and due. It
// reports whether it compared.
func (d *Drift) compareRules(ctx context.Context) bool {
	began, least := time.Now(), time.Duration(0)
	if d.tool.Backend == iptables.Legacy {
		least = compareEvery
	}
	if !d.owed && least == 0 || began.Before(d.save) {
		return false
	}
	if least > 0 {
		d.shared()
	}
	d.doubt, d.owed = d.findReplaced(ctx), ctx.Err() != nil
	d.save = time.Now().Add(max(least, 100*time.Since(began))) // use at most 1% of a CPU
	return true
}

// findReplaced reads the tables and describes the first chain of ours that differs from what was written or lacks a
// jump. It returns "" if there is none.
func (d *Drift) findReplaced(ctx context.Context) (why string) {
	found, err := d.tool.SaveIf(ctx, d.reads, d.tables...)
	switch {
	case ctx.Err() != nil:
		return ""
	case err != nil:
		return err.Error()
	}
	for _, j := range d.leads() {
		if !found.Has(j.At, j.Rule) && !found.Has(j.At, iptables.Unread) && found.Unsure(j.At) == "" {
			return fmt.Sprintf("a jump was deleted from %s", j.At)
		}
	}
	d.each(func(id iptables.ID, text string) {
		if rules, there := found[id]; why == "" && (!there || !slices.Contains(rules, iptables.Unread) && iptables.Join(rules) != text) {
			why = fmt.Sprintf("%s is not as it was written", id)
		}
	})
	return why
}

// findLost describes the first missing rule of ours, or returns "". It reads the use counts of all chains, and the
// rules of those chains whose count is unexpected, those with our jumps, and those to which our jumps lead. It
// cannot detect that rules were replaced by the same number of others; findReplaced can.
func (d *Drift) findLost(ctx context.Context) (string, error) {
	uses, err := d.tool.Uses(ctx)
	if err != nil {
		return "", err
	}
	want := make(map[iptables.ID]uint32)
	at, entries := make(map[iptables.ID][]iptables.Rule), make(map[iptables.ID]bool)
	for _, j := range d.leads() {
		at[j.At] = append(at[j.At], j.Rule)
		entry := iptables.ID{Table: j.At.Table, Chain: j.Rule.Target()}
		entries[entry] = true
		want[entry]++
	}
	d.each(func(id iptables.ID, text string) {
		for rule := range strings.Lines(text) {
			want[id]++
			want[iptables.ID{Table: id.Table, Chain: iptables.Rule(strings.TrimSuffix(rule, "\n")).Target()}]++
		}
	})
	for id, rules := range at {
		have, _, err := d.tool.Find(ctx, id)
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
	before, why := d.uses, ""
	d.uses = make(map[iptables.ID]uint32)
	d.each(func(id iptables.ID, text string) {
		if why != "" || err != nil {
			return
		}
		switch use, there := uses[id]; {
		case !there:
			why = fmt.Sprintf("%s was deleted", id)
		case use == want[id] && !entries[id]:
		case use == before[id] && !entries[id]:
			d.uses[id] = use
		default:
			var is bool
			if is, err = d.isAsWritten(ctx, id, text); err == nil && !is {
				why = fmt.Sprintf("%s is not as it was written", id)
			}
			d.uses[id] = use
		}
	})
	return why, err
}

// isAsWritten reports whether the kernel has a chain with these rules. If the program cannot print the chain,
// another program has written there, so it has not.
func (d *Drift) isAsWritten(ctx context.Context, id iptables.ID, text string) (bool, error) {
	rules, there, err := d.tool.List(ctx, id)
	if errors.Is(err, iptables.ErrUnreadable) {
		return false, nil
	}
	return there && iptables.Join(rules) == text, err
}

// An audited is a chain with its rules, or a jump in it.
type audited struct {
	at         iptables.ID
	text, jump string
}

// Audit compares one chain or one jump of ours with the kernel. Repeated calls go through all of them.
func (d *Drift) Audit(ctx context.Context) {
	if d.doubt != "" {
		return
	}
	if len(d.agenda) == 0 {
		for _, j := range d.leads() {
			d.agenda = append(d.agenda, audited{at: j.At, jump: string(j.Rule)})
		}
		d.each(func(id iptables.ID, text string) { d.agenda = append(d.agenda, audited{at: id, text: text}) })
	}
	if len(d.agenda) == 0 {
		return
	}
	next := d.agenda[0]
	d.agenda = d.agenda[1:]
	if next.jump != "" {
		if there, err := d.tool.Exists(ctx, next.at, iptables.Rule(next.jump)); err == nil && !there && d.isWanted(next) {
			d.doubt = fmt.Sprintf("a jump is missing from %s", next.at)
		}
		return
	}
	if is, err := d.isAsWritten(ctx, next.at, next.text); err == nil && !is && d.isWanted(next) {
		d.doubt = fmt.Sprintf("%s is not as it was written", next.at)
	}
}

// isWanted reports whether the kernel should still have what is audited.
func (d *Drift) isWanted(a audited) (is bool) {
	if a.jump != "" {
		return slices.Contains(d.leads(), iptables.Jump{At: a.at, Rule: iptables.Rule(a.jump)})
	}
	d.each(func(id iptables.ID, text string) { is = is || id == a.at && text == a.text })
	return is
}
