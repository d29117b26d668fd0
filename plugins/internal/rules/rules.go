// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A Config says what is particular to one mode's rules in one family.
type Config struct {
	Trees []Tree

	// IsOurs reports whether a chain is this mode's, or kube-proxy's whose place it takes, by its name.
	IsOurs func(iptables.ID) bool

	// IsFixed reports whether a chain of ours may belong to more than one Service.
	IsFixed func(iptables.ID) bool

	// Role returns the role that our jumps imply.
	Role func([]iptables.Jump) sdk.Role

	// Owner returns the Service to which an entry of a tree belongs, as the kernel has it. textOf returns the rules of
	// a chain.
	Owner func(e Entry, textOf func(iptables.ID) string) (sdk.Name, bool)

	// IsBeside, if not nil, names chains of other programs that must be known: a table that has one is read.
	IsBeside func(iptables.ID) bool

	// Mangle says that there are chains of ours in mangle, too.
	Mangle bool

	// Rank orders chains: each has a higher rank than those of ours that its rules lead to. So the rank of a chain is
	// also the most chains that lie one behind the other from it on.
	Rank func(iptables.Chain) int

	// Companions are chains in tables that are never read, which are removed with one that is.
	Companions map[iptables.ID]iptables.ID
}

// A Tree is one in which entries hang.
type Tree struct {
	*tree.Tree
	Shared bool // several Services may need the same entry
	Whole  bool // entries catch the packets to an address, whatever the port
}

// Rules are the rules of one IP family and the programs that write them. One goroutine at a time uses them.
type Rules struct {
	*reconcile.Reconciler[Piece, Key, string]
	Config
	Tool iptables.Tool

	// Masquerade is the hold on the chains that all modes share; nil: rules lead to none of them.
	Masquerade *masquerade.Hold

	// Reading, if not nil, is called with what was read, at each reading: what rules need beside rules may have been
	// removed with them.
	Reading func(iptables.Tables) error

	Stats Stats
	Drift

	fixed []iptables.Chain
	ends  []ends // of the trees' roots; nil: they are not known yet
	jumps []iptables.Jump
	own   []iptables.Jump

	state
}

// A state is what the kernel has, beside what the reconciler knows.
type state struct {
	text     map[iptables.ID]string   // the rules of each chain of a tree
	changed  map[iptables.ID]composed // chains of trees that may have another text now
	standing map[iptables.ID]string   // our jumps at each built-in chain, from top to bottom
	unread   map[iptables.ID]string   // chains of others that the program cannot print; why, if it is not known which jumps stand there
	held     map[iptables.ID]bool     // chains of ours to which foreign rules lead
	count    map[string]int           // rules in our chains, by table
	grows    map[string]int           // by how many, when the present plan is written
	found    map[iptables.ID]string   // the rules of fixed chains, when they were read
	known    bool                     // all this is what the kernel has, as far as this process wrote it
	read     bool                     // since the kernel last had what it should
}

// ends are the rules before and after those that a tree has in its root.
type ends struct{ head, tail []iptables.Rule }

// A composed is what a chain of a tree should be.
type composed struct {
	level int
	text  string
	gone  bool
}

// Stats are what operators of kube-proxy know of rules.
type Stats struct {
	Last     map[string]int // rules written by the last update, by table
	Failures int            // restores that failed
	Partial  int            // of these, those with only what changed
}

// New returns rules of which nothing is known yet.
func New(c Config, tool iptables.Tool) *Rules {
	r := &Rules{Config: c, Tool: tool, Stats: Stats{Last: make(map[string]int)}}
	r.Reconciler = reconcile.New[Piece, Key, string](mode{r}, kernel{r})
	r.Name = tool.Family.String()
	r.Drift = newDrift(&r.Tool, r.tables(), r.EachChain, func() []iptables.Jump { return r.jumps }, func() { r.Masquerade.Doubt() })
	r.Drift.reads = func(id iptables.ID) bool { return r.IsOurs(id) || r.IsBeside != nil && r.IsBeside(id) }
	r.forget()
	return r
}

// forget makes the state that of a kernel that has nothing.
func (r *Rules) forget() {
	r.state = state{
		text: make(map[iptables.ID]string), changed: make(map[iptables.ID]composed), standing: make(map[iptables.ID]string),
		unread: make(map[iptables.ID]string), held: make(map[iptables.ID]bool), found: make(map[iptables.ID]string), count: make(map[string]int), grows: make(map[string]int),
	}
	for _, t := range r.Trees {
		t.Reset()
	}
}

// Family returns the family of the rules' addresses.
func (r *Rules) Family() sdk.Family { return r.Tool.Family }

// tables are those in which the mode may have rules.
func (r *Rules) tables() []string {
	if r.Mangle {
		return []string{"nat", "filter", "mangle"}
	}
	return []string{"nat", "filter"}
}

// Hold hands the writer's lock to every program that writes; nil: this process is not the writer. What was known may
// have changed before.
func (r *Rules) Hold(lock *ledger.Lock) {
	r.Tool.Hold = nil
	if lock != nil {
		r.Tool.Hold = lock.File()
	}
	r.known = false
}

// IsCurrent reports whether no process wrote since the last reading, as far as the kernel tells without another one.
func (r *Rules) IsCurrent() bool { return r.known && r.Doubt() == "" && r.isUnchanged() }

// Look doubts the rules if other processes removed some of ours.
func (r *Rules) Look(ctx context.Context) {
	if r.known {
		r.Drift.Look(ctx)
	}
}

// Audit compares one chain or one jump with the kernel, another each time.
func (r *Rules) Audit(ctx context.Context) { r.Drift.Audit(ctx) }

// Found returns the rules of a fixed chain, as the last reading found them.
func (r *Rules) Found(id iptables.ID) (text string, ok bool) {
	text, ok = r.found[id]
	return text, ok
}

// ShownRole returns the role that our jumps in the kernel imply.
func (r *Rules) ShownRole() sdk.Role {
	var all []iptables.Jump
	for at, text := range r.standing {
		for _, rule := range iptables.Split(text) {
			all = append(all, iptables.Jump{At: at, Rule: rule})
		}
	}
	return r.Role(all)
}

// Stands reports whether the kernel has a jump.
func (r *Rules) Stands(j iptables.Jump) bool {
	return slices.Contains(iptables.Split(r.standing[j.At]), j.Rule)
}

// RuleCount returns how many rules the kernel has in our chains of a table.
func (r *Rules) RuleCount(table string) int { return r.count[table] }

// EachChain calls add with each chain that the kernel has, as far as it was read and written, and its rules.
func (r *Rules) EachChain(add func(iptables.ID, string)) {
	r.EachInstalled(func(k Key, text string) {
		if k.kind == ofChain {
			add(k.chain, text)
		}
	})
	for id, text := range r.text {
		add(id, text)
	}
}

// Notes say where our jumps are that the program cannot print.
func (r *Rules) Notes() (notes []string) {
	for id, why := range r.unread {
		if !slices.ContainsFunc(r.own, func(j iptables.Jump) bool { return j.At == id }) {
			continue
		}
		if why == "" {
			why = fmt.Sprintf("iptables cannot print %s (%s), where another program keeps rules of nf_tables; our jumps there are asked for one by one", id, r.Family())
		}
		notes = append(notes, why)
	}
	slices.Sort(notes)
	return notes
}

// SetFixed replaces the chains that belong to no Service.
func (r *Rules) SetFixed(chains []iptables.Chain) {
	r.fixed = chains
	r.Refix()
}

// SetRoot replaces the rules before and after those that a tree has in its root.
func (r *Rules) SetRoot(in int, head, tail []iptables.Rule) {
	if r.ends == nil {
		r.ends = make([]ends, len(r.Trees))
	}
	r.ends[in] = ends{head, tail}
	r.Trees[in].Touch()
}

// SetJumps replaces the jumps that should be at built-in chains. Each is put at the top, so the first one of a chain
// stands below the others. own are all that this mode makes in any role: another one that is listed is kube-proxy's,
// whose chains the mode takes over.
func (r *Rules) SetJumps(jumps, own []iptables.Jump) {
	r.jumps, r.own = jumps, own
	r.Refix()
}

// wantedJumps returns the jumps that should be at each built-in chain, from top to bottom.
func (r *Rules) wantedJumps() map[iptables.ID]string {
	all := make(map[iptables.ID]string)
	for _, j := range r.jumps {
		all[j.At] = string(j.Rule) + "\n" + all[j.At]
	}
	for at, text := range all {
		if _, unread := r.unread[at]; unread && haveSameLines(text, r.standing[at]) { // the program told in no order which are there
			all[at] = r.standing[at]
		}
	}
	return all
}

func haveSameLines(a, b string) bool {
	x, y := iptables.Split(a), iptables.Split(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

func (s *Stats) write(p iptables.Plan) {
	clear(s.Last)
	for _, b := range p {
		s.Last[b.Table] += iptables.Lines(b.Whole) - len(b.Whole) + len(b.Insert)
	}
}

// lines returns the number of rules in a text.
func lines(text string) int { return strings.Count(text, "\n") }
