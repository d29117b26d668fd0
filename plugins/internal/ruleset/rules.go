// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"context"
	"fmt"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// Rules are the set of one IP family and the programs that make the kernel follow it. One
// goroutine at a time uses it.
type Rules[K comparable] struct {
	*Set[K]
	Tool iptables.Tool

	// Masquerade is the hold on what all dataplanes share; nil: only leftovers are removed.
	Masquerade *masquerade.Hold

	// Reading, if not nil, is called at each reading: what rules need beside rules may have
	// been removed with them.
	Reading func() error

	Stats Stats

	// known says that the observed rules are what the kernel has, as far as this process
	// wrote them. After an error that is uncertain, and the next call reads the kernel.
	known bool

	asRead *iptables.Generation // of the tables, when they were last read; nil: written to since
	read   bool                 // since the kernel last had what it should

	doubt string           // why the kernel may not have what was observed; empty: it has
	sizes map[string]sized // of legacy's tables
	foreign
	audit []iptables.Jump // what is still to be audited
}

// Stats are what operators of kube-proxy know of rules.
type Stats struct {
	Last     map[string]int // rules written by the last update, by table
	Failures int            // restores that failed
	Partial  int            // of these, those with only what changed
}

// NewRules are rules of which nothing is known yet.
func NewRules[K comparable](c Config[K], tool iptables.Tool) *Rules[K] {
	return &Rules[K]{
		Set:   New(c),
		Tool:  tool,
		Stats: Stats{Last: make(map[string]int)},
		sizes: make(map[string]sized),
	}
}

// Known reports whether the observed rules are what the kernel has.
func (r *Rules[K]) Known() bool { return r.known }

// Hold hands the writer's lock to every program that writes; nil: this process is not the
// writer. What was known is of before.
func (r *Rules[K]) Hold(lock *ledger.Lock) {
	r.Tool.Hold = nil
	if lock != nil {
		r.Tool.Hold = lock.File()
	}
	r.known = false
}

// Read takes the kernel's tables into the set, and returns what it read.
func (r *Rules[K]) Read(ctx context.Context) (iptables.Tables, error) {
	r.known = false
	r.asRead = nil
	r.Masquerade.Doubt()
	generation, unstamped := r.Tool.Generation(r.config.tables()...)
	if r.Tool.Backend == iptables.NFT && r.Tool.Hold != nil {
		commits, err := r.Tool.Foreign()
		if err != nil {
			return nil, fmt.Errorf("read %s tables: %w", r.Family(), err)
		}
		r.foreign = foreign{known: commits, next: r.foreign.next, save: r.foreign.save}
	}
	found, err := r.Tool.SaveIf(ctx, r.config.reads, r.config.tables()...)
	if err != nil {
		return nil, fmt.Errorf("read %s tables: %w", r.Family(), err)
	}
	if r.Reading != nil {
		if err := r.Reading(); err != nil {
			return nil, err
		}
	}
	r.known, r.read = true, true
	if unstamped == nil {
		r.asRead = &generation
	}
	if r.Tool.Backend == iptables.NFT { // of legacy a size does not tell enough
		r.Masquerade.Saw(found, r.JustRead)
	}
	r.Adopt(found)
	return found, nil
}

// JustRead reports whether the observed rules are what the kernel has, as far as the kernel
// tells without another reading: no process wrote since the last one.
func (r *Rules[K]) JustRead() bool {
	if !r.known || r.asRead == nil {
		return false
	}
	now, err := r.Tool.Generation(r.config.tables()...)
	return err == nil && now == *r.asRead
}

// Write carries out a plan of these rules. Each part of it that is done is noted, and at the
// end that the kernel has what it should, but for chains that are left to be removed. After
// an error the kernel is read before anything else is written. Where nothing is to be written
// and nothing was read the kernel is not asked how large its tables are: what another process
// removed meanwhile would be taken for ours.
func (r *Rules[K]) Write(ctx context.Context, p Plan) error {
	if len(p) > 0 {
		r.asRead, r.contents = nil, 0
	}
	r.Stats.write(p)
	if err := p.Write(ctx, r.Tool, r.config.Rank, r.RuleCount("nat"), r.Done); err != nil {
		r.known = false
		r.Stats.Failures++
		if len(r.touched) < len(r.chains) {
			r.Stats.Partial++
		}
		return err
	}
	r.Settled()
	if r.read {
		r.doubt = ""
	}
	if r.read || len(p) > 0 {
		r.measure()
	}
	r.read = false
	return nil
}

func (s *Stats) write(p Plan) {
	clear(s.Last)
	for _, b := range p {
		s.Last[b.Table] += iptables.Lines(b.Whole) - len(b.Whole) + len(b.Insert)
	}
}
