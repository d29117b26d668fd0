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
// number of commits and the number of rules of a chain, and legacy tables have a size. A rule that replaces
// another one is found only by reading all rules: for nft after a commit of another process, for legacy every
// compareEvery, because the size may stay the same. A doubt stays until the kernel was read and written again.

const (
	// maxLooks is the number of looks for which another process may keep changing the tables before removed
	// rules are restored.
	maxLooks = 4

	// compareEvery is the interval at which legacy's rules are compared with what was written.
	compareEvery = 30 * time.Second

	// mostUnread is the number of our unread chains up to which a comparison reads each. There are more only if the
	// program cannot print a table with very many chains: then all are unread, and each costs a run of the program.
	mostUnread = 50
)

// A drift is what Rules know about changes by other processes.
type drift struct {
	doubt  string               // why the rules may differ from what was written; empty: no doubt
	asRead *iptables.Generation // generation of the tables at the last reading; nil: this process has written since

	checked     iptables.Generation // the result of Tool.Foreign when none of our rules was missing
	seen        iptables.Generation // the result of Tool.Foreign at the last look
	looks       int                 // number of looks since it differed from checked; not zero: others are changing the tables
	lookAt      time.Time           // earliest time of the next close look
	mustCompare bool                // rules must be compared, because others have committed to nf_tables
	compareAt   time.Time           // earliest time of the next comparison

	// uses has the use counts of chains whose count is unexpected (foreign rules lead there) but whose rules
	// are ours.
	uses map[iptables.ID]uint32
}

// Doubt returns why the rules may differ from what was written, or "".
func (r *Rules) Doubt() string { return r.doubt }

// Doubted returns Doubt. If that is empty, unsure reports whether another process is changing the tables, so that
// the last look had no result.
func (r *Rules) Doubted() (why string, unsure bool) { return r.doubt, r.doubt == "" && r.looks > 0 }

// reads reports whether a table with this chain is read.
func (r *Rules) reads(id iptables.ID) bool {
	return r.IsOurs(id) || r.IsBeside != nil && r.IsBeside(id)
}

// beginReading prepares a reading of the tables. Writes of other processes from now on count as changes. The
// caller calls done after the reading.
func (r *Rules) beginReading() (done func(), err error) {
	r.asRead = nil
	generation, unstamped := r.Tool.Generation(r.tables()...)
	if r.Tool.Backend == iptables.NFT && r.Tool.Hold != nil {
		if r.checked, err = r.Tool.Foreign(r.tables()...); err != nil {
			return nil, err
		}
	}
	r.looks, r.mustCompare, r.uses = 0, false, nil
	if r.Tool.Backend == iptables.Legacy {
		r.compareAt = time.Now().Add(compareEvery)
	}
	return func() {
		if unstamped == nil {
			r.asRead = &generation
		}
	}, nil
}

// isUnchanged reports whether no process has written since the last reading, as far as the kernel can tell.
func (r *Rules) isUnchanged() bool {
	if r.asRead == nil {
		return false
	}
	now, err := r.Tool.Generation(r.tables()...)
	return err == nil && now == *r.asRead
}

// recordWritten records that the kernel has what it should. Own writes change the size of legacy tables, so the size
// is read again. Commits of other processes to nf_tables are counted separately.
func (r *Rules) recordWritten() {
	if r.Tool.Backend == iptables.Legacy {
		if now, err := r.Tool.Foreign(r.tables()...); err == nil {
			r.checked, r.looks = now, 0
		}
	}
}

// Look checks whether other processes removed some of our rules, and records a doubt if so. It is called twice
// a second, and does nothing while the expected rules are unknown. After a change by others it waits for a pause
// before it looks closer: a process that empties tables does so in several steps, and would fail on rules that are
// restored between them.
func (r *Rules) Look(ctx context.Context) {
	if !r.known || r.Tool.Hold == nil || r.doubt != "" {
		return // not the writer, or everything is read again anyway
	}
	began := time.Now()
	if (r.mustCompare || r.Tool.Backend == iptables.Legacy) && !began.Before(r.compareAt) {
		r.Compare(ctx)
		return
	}
	now, err := r.Tool.Foreign(r.tables()...)
	if err != nil || now == r.checked {
		return
	}
	paused := now == r.seen
	r.seen = now
	if r.looks++; !paused && r.looks < maxLooks || began.Before(r.lookAt) {
		return
	}
	r.Masquerade.Doubt()
	why := ""
	if r.Tool.Backend == iptables.Legacy {
		why = r.findReplaced(ctx)
	} else if why, err = r.findLost(ctx); err != nil {
		why = err.Error()
	}
	if ctx.Err() != nil {
		return
	}
	r.doubt, r.checked, r.looks, r.mustCompare = why, now, 0, r.Tool.Backend == iptables.NFT
	r.lookAt = time.Now().Add(min(50*time.Since(began), 3*time.Second)) // use at most 2% of a CPU
}

// Compare reads the tables, and records a doubt if a rule differs from what was written.
func (r *Rules) Compare(ctx context.Context) {
	began, least := time.Now(), time.Duration(0)
	if r.Tool.Backend == iptables.Legacy {
		least = compareEvery
		r.Masquerade.Doubt()
	}
	r.doubt, r.mustCompare = r.findReplaced(ctx), ctx.Err() != nil
	r.compareAt = time.Now().Add(max(least, 100*time.Since(began))) // use at most 1% of a CPU
}

// findReplaced reads the tables and describes the first chain of ours that differs from what was written or lacks a
// jump. It returns "" if there is none.
func (r *Rules) findReplaced(ctx context.Context) (why string) {
	found, err := r.Tool.SaveIf(ctx, r.reads, r.tables()...)
	switch {
	case ctx.Err() != nil:
		return ""
	case err != nil:
		return err.Error()
	}
	for _, j := range r.jumps {
		if !found.Has(j.At, j.Rule) && !found.Has(j.At, iptables.Unread) && found.Unsure(j.At) == "" {
			return fmt.Sprintf("a jump was deleted from %s", j.At)
		}
	}
	unread := make(map[iptables.ID]string)
	r.EachChain(func(id iptables.ID, text string) {
		switch rules, there := found[id]; {
		case slices.Contains(rules, iptables.Unread):
			unread[id] = text
		case why == "" && (!there || iptables.Join(rules) != text):
			why = fmt.Sprintf("%s is not as it was written", id)
		}
	})
	if why != "" || len(unread) > mostUnread {
		return why
	}
	for id, text := range unread {
		switch is, err := r.isAsWritten(ctx, id, text); {
		case ctx.Err() != nil:
			return ""
		case err != nil:
			return err.Error()
		case !is:
			return fmt.Sprintf("%s is not as it was written", id)
		}
	}
	return ""
}

// findLost describes the first missing rule of ours, or returns "". It reads the use counts of all chains, and the
// rules of those chains whose count is unexpected, those with our jumps, and those to which our jumps lead. It
// cannot detect that rules were replaced by the same number of others; findReplaced can.
func (r *Rules) findLost(ctx context.Context) (string, error) {
	uses, err := r.Tool.Uses(ctx)
	if err != nil {
		return "", err
	}
	want := make(map[iptables.ID]uint32)
	at, entries := make(map[iptables.ID][]iptables.Rule), make(map[iptables.ID]bool)
	for _, j := range r.jumps {
		at[j.At] = append(at[j.At], j.Rule)
		entry := iptables.ID{Table: j.At.Table, Chain: j.Rule.Target()}
		entries[entry] = true
		want[entry]++
	}
	r.EachChain(func(id iptables.ID, text string) {
		for rule := range strings.Lines(text) {
			want[id]++
			want[iptables.ID{Table: id.Table, Chain: iptables.Rule(strings.TrimSuffix(rule, "\n")).Target()}]++
		}
	})
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
	before, why := r.uses, ""
	r.uses = make(map[iptables.ID]uint32)
	r.EachChain(func(id iptables.ID, text string) {
		if why != "" || err != nil {
			return
		}
		switch use, there := uses[id]; {
		case !there:
			why = fmt.Sprintf("%s was deleted", id)
		case use == want[id] && !entries[id]:
		case use == before[id] && !entries[id]:
			r.uses[id] = use
		default:
			var is bool
			if is, err = r.isAsWritten(ctx, id, text); err == nil && !is {
				why = fmt.Sprintf("%s is not as it was written", id)
			}
			r.uses[id] = use
		}
	})
	return why, err
}

// isAsWritten reports whether the kernel has a chain with these rules. If the program cannot print the chain,
// another program has written there, so it has not.
func (r *Rules) isAsWritten(ctx context.Context, id iptables.ID, text string) (bool, error) {
	rules, there, err := r.Tool.List(ctx, id)
	if errors.Is(err, iptables.ErrUnreadable) {
		return false, nil
	}
	return there && iptables.Join(rules) == text, err
}
