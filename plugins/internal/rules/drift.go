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

// This file finds out whether another process removed or replaced rules, at little cost: nf_tables says how
// many commits there were and how many rules a chain has, legacy's tables have a size, and an audit reads one
// chain at a time. A rule in the place of another needs a reading of all: with nft it follows a commit of
// another process, with legacy it comes every compareEvery, since a size may stay the same. A reason for doubt stays
// until the kernel was read and written again.

const (
	// LookEvery is how often Look is called.
	LookEvery = 500 * time.Millisecond

	// MaxLooks is for how many looks another process may be at work on the tables before
	// what it removed is put back.
	MaxLooks = 4

	// compareEvery is how often legacy's rules are compared with those that were written.
	compareEvery = 30 * time.Second
)

// A Drift is what is known of changes by other processes to the rules of one family.
type Drift struct {
	tool   *iptables.Tool
	tables []string
	reads  func(iptables.ID) bool                   // a table that has such a chain is read
	each   func(add func(id iptables.ID, t string)) // the chains that the kernel should have
	leads  func() []iptables.Jump                   // and the jumps
	shared func()                                   // is called when chains that all modes share may have changed

	doubt  string               // why the kernel may not have what it should; empty: it has
	asRead *iptables.Generation // of the tables, when they were last read; nil: written to since
	agenda []audited            // what is still to be audited

	checked iptables.Generation // as Tool.Foreign returns it, when nothing of ours was missing
	seen    iptables.Generation // at the last look
	looks   int                 // at which it was another than checked
	next    time.Time           // when to look closer again, at the earliest
	owed    bool                // a comparison of the rules themselves, since others have committed something to nf_tables
	save    time.Time           // when to do that, at the earliest

	// uses are of chains that more leads to than we know of, which have our rules.
	uses map[iptables.ID]uint32
}

// newDrift watches tables by a tool. each calls its argument with the chains that the kernel should have, and jumps
// returns the jumps to them.
func newDrift(tool *iptables.Tool, tables []string, each func(func(iptables.ID, string)), jumps func() []iptables.Jump, shared func()) Drift {
	return Drift{tool: tool, tables: tables, each: each, leads: jumps, shared: shared}
}

// Doubt returns why the kernel may not have what it should; empty: no reason is known.
func (d *Drift) Doubt() string { return d.doubt }

// Waits reports whether another process is at work, so that the last look found nothing out.
func (d *Drift) Waits() bool { return d.looks > 0 }

// Doubted returns Doubt, and if there is none, as unsure, Waits.
func (d *Drift) Doubted() (why string, unsure bool) { return d.doubt, d.doubt == "" && d.Waits() }

// beginReading returns what notes that the tables were read. All that other processes write from now on counts.
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

// isUnchanged reports whether no process wrote since the last reading, as far as the kernel tells.
func (d *Drift) isUnchanged() bool {
	if d.asRead == nil {
		return false
	}
	now, err := d.tool.Generation(d.tables...)
	return err == nil && now == *d.asRead
}

// beginWriting notes that this process writes.
func (d *Drift) beginWriting() { d.asRead = nil }

// settled notes that the kernel has what it should. Legacy's tables have other sizes once this process has written; the
// commits of other processes to nf_tables are counted apart.
func (d *Drift) settled() {
	if d.tool.Backend == iptables.Legacy {
		if now, err := d.tool.Foreign(d.tables...); err == nil {
			d.checked, d.looks = now, 0
		}
	}
}

// Look doubts the rules if other processes removed some of ours. It is called each LookEvery, while it is known what the
// kernel should have. It looks closer when other processes have changed something, once they make a pause: one that
// empties tables does so in several steps, and would fail on what is put back between them.
func (d *Drift) Look(ctx context.Context) {
	if d.tool.Hold == nil || d.doubt != "" {
		return // not the writer, or it is all read again anyway
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
		why = d.replaced(ctx)
	} else if why, err = d.lost(ctx); err != nil {
		why = err.Error()
	}
	if ctx.Err() != nil {
		return
	}
	d.doubt, d.checked, d.looks, d.owed = why, now, 0, d.tool.Backend == iptables.NFT
	d.next = time.Now().Add(min(50*time.Since(began), 3*time.Second)) // a fiftieth of a processor at most
}

// compareRules compares the rules in the kernel with the rules that were written, when a comparison is owed and due. It
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
	d.doubt, d.owed = d.replaced(ctx), ctx.Err() != nil
	d.save = time.Now().Add(max(least, 100*time.Since(began))) // a hundredth of a processor at most
	return true
}

// replaced returns which of our chains has other rules than were written, or which lacks a jump of ours; empty: none. It
// reads the tables.
func (d *Drift) replaced(ctx context.Context) (why string) {
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

// lost returns what of our rules is missing; empty: nothing. It reads the numbers of rules of all chains, the
// chains whose number is another than it should be, those in which our jumps stand, and those to which they
// lead. That rules of another were replaced by as many it cannot tell; replaced can.
func (d *Drift) lost(ctx context.Context) (string, error) {
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
			if is, err = d.is(ctx, id, text); err == nil && !is {
				why = fmt.Sprintf("%s is not as it was written", id)
			}
			d.uses[id] = use
		}
	})
	return why, err
}

// is reports whether the kernel has a chain with these rules. One that the program cannot print has others, since
// another program wrote there.
func (d *Drift) is(ctx context.Context, id iptables.ID, text string) (bool, error) {
	rules, there, err := d.tool.List(ctx, id)
	if errors.Is(err, iptables.ErrUnreadable) {
		return false, nil
	}
	return there && iptables.Join(rules) == text, err
}

// An audited is a chain with its rules, or a jump at it.
type audited struct {
	at         iptables.ID
	text, jump string
}

// Audit reads one chain of ours, or asks for one jump, and compares. Call by call it goes through all of them.
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
		if there, err := d.tool.Exists(ctx, next.at, iptables.Rule(next.jump)); err == nil && !there && d.wants(next) {
			d.doubt = fmt.Sprintf("a jump is missing from %s", next.at)
		}
		return
	}
	if is, err := d.is(ctx, next.at, next.text); err == nil && !is && d.wants(next) {
		d.doubt = fmt.Sprintf("%s is not as it was written", next.at)
	}
}

// wants reports whether the kernel should still have what is audited.
func (d *Drift) wants(a audited) (is bool) {
	if a.jump != "" {
		return slices.Contains(d.leads(), iptables.Jump{At: a.at, Rule: iptables.Rule(a.jump)})
	}
	d.each(func(id iptables.ID, text string) { is = is || id == a.at && text == a.text })
	return is
}
