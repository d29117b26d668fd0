// SPDX-License-Identifier: Apache-2.0

package rules

import (
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

// A Config describes one mode's rules in one family.
type Config struct {
	Trees []Tree

	// IsOurs reports whether a chain, by its name, belongs to this mode or to a kube-proxy whose place it
	// takes.
	IsOurs func(iptables.ID) bool

	// IsFixed reports whether a chain of ours may belong to more than one Service.
	IsFixed func(iptables.ID) bool

	// Role returns the role that our jumps imply.
	Role func([]iptables.Jump) sdk.Role

	// Owner returns the Service to which an entry of a tree in the kernel belongs. textOf returns the rules of
	// a chain.
	Owner func(e Entry, textOf func(iptables.ID) string) (sdk.Name, bool)

	// IsBeside, if not nil, reports whether a chain of another program must be known. Tables with such a chain
	// are read.
	IsBeside func(iptables.ID) bool

	// Mangle is set if the mode has chains in mangle, too.
	Mangle bool

	// Rank returns a higher number for a chain than for all of ours that its rules lead to. The rank is
	// therefore also the maximum length of a path of chains that starts there.
	Rank func(iptables.Chain) int

	// Companions maps a chain to one in a table that is never read. Both are removed together.
	Companions map[iptables.ID]iptables.ID
}

// A Tree is a tree of chains with the properties of its entries.
type Tree struct {
	*tree.Tree
	Shared bool // several Services may need the same entry
	Whole  bool // entries match an address with all its ports
}

// Rules are the rules of one IP family and the programs that write them. Only one goroutine at a time may use
// them.
type Rules struct {
	*reconcile.Reconciler[Piece, Key, string]
	Config
	Tool iptables.Tool

	// Masquerade is the hold on the chains that all modes share; nil if no rule leads to them.
	Masquerade *masquerade.Hold

	// Reading, if not nil, is called after each reading with what was read: objects other than rules that the
	// rules need may have been removed with them.
	Reading func(iptables.Tables) error

	Stats Stats

	fixed []iptables.Chain
	ends  []ends // rules beside the trees in their roots; nil: SetRoot was not called yet
	jumps []iptables.Jump
	own   []iptables.Jump

	state
	drift
}

// A state is what the kernel has, in addition to what the reconciler knows.
type state struct {
	text    map[iptables.ID]string   // the rules of each chain of a tree
	changed map[iptables.ID]composed // chains of trees whose text may have changed
	present map[iptables.ID]string   // our jumps at each built-in chain, from top to bottom
	unread  map[iptables.ID]string   // foreign chains that the program cannot print, with the reason if it is unknown which of our jumps they have
	held    map[iptables.ID]bool     // chains of ours to which foreign rules lead
	count   map[string]int           // rules in our chains, by table
	added   map[string]int           // number of rules by which the present plan changes count
	found   map[iptables.ID]string   // the rules of fixed chains at the last reading
	known   bool                     // the state is complete: it was read, and all writes since then succeeded
	read    bool                     // the kernel was read, and no Apply has succeeded since
}

// ends are the rules before and after those of a tree in its root.
type ends struct{ head, tail []iptables.Rule }

// A composed is the desired text of a chain of a tree.
type composed struct {
	level int
	text  string
	gone  bool
}

// Stats are statistics with the meaning of kube-proxy's metrics.
type Stats struct {
	Last     map[string]int // rules written by the last update, by table
	Failures int            // restores that failed
	Partial  int            // how many of these were partial restores
}

// New returns Rules without knowledge of the kernel.
func New(c Config, tool iptables.Tool) *Rules {
	r := &Rules{Config: c, Tool: tool, Stats: Stats{Last: make(map[string]int)}}
	r.Reconciler = reconcile.New[Piece, Key, string](mode{r}, kernel{r})
	r.Name = tool.Family.String()
	r.forget()
	return r
}

// forget resets the state to that of an empty kernel.
func (r *Rules) forget() {
	r.state = state{
		text: make(map[iptables.ID]string), changed: make(map[iptables.ID]composed), present: make(map[iptables.ID]string),
		unread: make(map[iptables.ID]string), held: make(map[iptables.ID]bool), found: make(map[iptables.ID]string), count: make(map[string]int), added: make(map[string]int),
	}
	for _, t := range r.Trees {
		t.Reset()
	}
}

// Family returns the family of the rules' addresses.
func (r *Rules) Family() sdk.Family { return r.Tool.Family }

// tables returns the tables in which the mode may have rules.
func (r *Rules) tables() []string {
	if r.Mangle {
		return []string{"nat", "filter", "mangle"}
	}
	return []string{"nat", "filter"}
}

// Hold passes the writer's lock to every program that writes. nil means that this process is not the writer.
// The state is no longer known, because another process may have written before.
func (r *Rules) Hold(lock *ledger.Lock) {
	r.Tool.Hold = nil
	if lock != nil {
		r.Tool.Hold = lock.File()
	}
	r.known = false
}

// IsCurrent reports whether no process has written since the last reading, as far as the kernel can tell
// without a reading.
func (r *Rules) IsCurrent() bool { return r.known && r.Doubt() == "" && r.isUnchanged() }

// Found returns the rules of a fixed chain, as the last reading found them.
func (r *Rules) Found(id iptables.ID) (text string, ok bool) {
	text, ok = r.found[id]
	return text, ok
}

// ShownRole returns the role that our jumps in the kernel imply.
func (r *Rules) ShownRole() sdk.Role {
	var all []iptables.Jump
	for at, text := range r.present {
		for _, rule := range iptables.Split(text) {
			all = append(all, iptables.Jump{At: at, Rule: rule})
		}
	}
	return r.Role(all)
}

// HasJump reports whether the kernel has a jump.
func (r *Rules) HasJump(j iptables.Jump) bool {
	return slices.Contains(iptables.Split(r.present[j.At]), j.Rule)
}

// RuleCount returns how many rules the kernel has in our chains of a table.
func (r *Rules) RuleCount(table string) int { return r.count[table] }

// EachChain calls add with each of our chains in the kernel and its rules, as this process has read or written
// them.
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

// Notes names the built-in chains with our jumps that the program cannot print.
func (r *Rules) Notes() (notes []string) {
	for id, why := range r.unread {
		if !slices.ContainsFunc(r.own, func(j iptables.Jump) bool { return j.At == id }) {
			continue
		}
		if why == "" {
			why = fmt.Sprintf("iptables cannot print %s (%s), to which another program added nf_tables rules; each of our jumps there is checked separately", id, r.Family())
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

// SetRoot replaces the rules before and after those of a tree in its root.
func (r *Rules) SetRoot(in int, head, tail []iptables.Rule) {
	if r.ends == nil {
		r.ends = make([]ends, len(r.Trees))
	}
	r.ends[in] = ends{head, tail}
	r.Trees[in].Touch()
}

// SetJumps replaces the desired jumps. Each is inserted at the top, so the first one of a chain ends up lowest.
// own are all jumps that this mode has in any role. Another listed jump is one of kube-proxy, whose chains the
// mode takes over.
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
		if _, unread := r.unread[at]; unread && haveSameLines(text, r.present[at]) { // the program does not tell the order of our jumps there
			all[at] = r.present[at]
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
