// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

const (
	leaf    = 8  // how many entries one chain lists
	fingers = 4  // how many branches one chain leads to
	deepest = 15 // how many chains may lie one behind the other; nft takes no more
)

// A tree leads a packet to its entry. Each of its chains leads on to at most four,
// by the next two bits of the packet's address, protocol or port that tell its
// entries apart; at the end at most eight entries are listed:
//
//	KUBE-SERVICES            -d 10.96.0.0/18 -j KUBE-VIP-10.96.0.0/18
//	KUBE-VIP-10.96.0.0/18    -d 10.96.16.0/20 -g KUBE-VIP-10.96.16.0/20
//	KUBE-VIP-10.96.16.0/20   -d 10.96.17.3/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-…
//
// Its shape depends on the entries alone, not on the order in which they came, so
// a new process finds the tree it would have made. An entry that comes or goes
// changes one chain, and now and then those beside it.
//
// The root is entered, and left, by -j: a packet that finds nothing comes back and
// goes on. Below, -g is enough, and such a packet need not be held against the
// branches beside its own.
type tree struct {
	root  iptables.ID
	stem  string // what the names of the other chains begin with
	addr  int    // digits of an address
	depth int    // levels below the root
	top   *twig

	// touched are the chains whose rules may be others now; nil: gone.
	touched map[iptables.ID]*twig
}

// A twig is one chain of a tree: a leaf that lists entries, or a fork.
type twig struct {
	at      prefix // what its entries have in common, and what it is called by
	level   int
	entries []entry // of a leaf, in order
	common  int     // of a fork: the digit it forks at
	forks   [fingers]*twig
	count   int // entries here and below
}

func newTree(root iptables.ID, stem string, addr, depth int) *tree {
	t := &tree{root: root, stem: stem, addr: addr, depth: depth, touched: make(map[iptables.ID]*twig)}
	t.top = t.grow(prefix{addr: addr}, 0, nil)
	return t
}

// digits is how many a key has.
func (t *tree) digits() int { return t.addr + 1 + portDigits }

// id is the chain that w is.
func (t *tree) id(w *twig) iptables.ID {
	if w.level == 0 {
		return t.root
	}
	return iptables.ID{Table: t.root.Table, Chain: t.stem + w.at.String()}
}

// put adds e, in place of another with the same key.
func (t *tree) put(e entry) { t.putIn(t.top, e) }

func (t *tree) putIn(w *twig, e entry) {
	if w.isLeaf() {
		i, found := slices.BinarySearchFunc(w.entries, e.key, entry.compare)
		if found {
			w.entries[i] = e
			t.regrow(w, w.entries)
			return
		}
		t.regrow(w, slices.Insert(w.entries, i, e))
		return
	}
	if t.shared(w.sample(), e.key) < w.common || w.level >= t.lowest(e) {
		t.regrow(w, t.insert(t.collect(w), e)) // it forks earlier now, or not at all
		return
	}
	d := e.key.digit(w.common, t.addr)
	if w.forks[d] == nil {
		w.forks[d] = t.grow(prefix{e.key, w.common + 1, t.addr}, w.level+1, []entry{e})
		t.touch(w)
	} else {
		t.within(w, w.forks[d], func(f *twig) { t.putIn(f, e) })
		return
	}
	w.count++
}

// within changes a branch of w, and keeps w true to it.
func (t *tree) within(w, branch *twig, change func(*twig)) {
	count, reach, weight := branch.count, t.reach(branch), branch.weight()
	change(branch)
	w.count += branch.count - count
	if t.reach(branch) != reach || branch.weight() != weight {
		t.touch(w)
	}
}

// drop removes the entry with e's key if it is still e's Service's.
func (t *tree) drop(e entry) { t.dropIn(t.top, e) }

func (t *tree) dropIn(w *twig, e entry) {
	if w.isLeaf() {
		i, found := slices.BinarySearchFunc(w.entries, e.key, entry.compare)
		if found && w.entries[i].name == e.name {
			t.regrow(w, slices.Delete(w.entries, i, i+1))
		}
		return
	}
	if t.shared(w.sample(), e.key) < w.common {
		return
	}
	f := w.forks[e.key.digit(w.common, t.addr)]
	if f == nil {
		return
	}
	before := f.count
	t.within(w, f, func(f *twig) { t.dropIn(f, e) })
	if f.count == 0 || w.count <= leaf && f.count < before {
		t.regrow(w, t.collect(w))
	}
}

// regrow makes the branch w anew, from entries.
func (t *tree) regrow(w *twig, entries []entry) {
	t.each(w, func(old *twig) { t.touched[t.id(old)] = nil })
	*w = *t.grow(w.at, w.level, entries)
	t.touch(w)
}

// grow makes the branch of entries.
func (t *tree) grow(at prefix, level int, entries []entry) *twig {
	w := &twig{at: at, level: level, entries: entries, count: len(entries)}
	if len(entries) > leaf && !slices.ContainsFunc(entries, func(e entry) bool { return level >= t.lowest(e) }) {
		w.entries = nil
		w.common = t.shared(entries[0].key, entries[len(entries)-1].key)
		for len(entries) > 0 {
			k := entries[0].key
			d := k.digit(w.common, t.addr)
			n, _ := slices.BinarySearchFunc(entries, d, func(e entry, d byte) int {
				return int(e.key.digit(w.common, t.addr)) - int(d) - 1 // the first beyond d
			})
			w.forks[d] = t.grow(prefix{k, w.common + 1, t.addr}, level+1, slices.Clone(entries[:n]))
			entries = entries[n:]
		}
	}
	t.touch(w)
	return w
}

// lowest is the level below which e must not hang, because of the chains that lie
// behind it. A leaf so low lists whatever is left.
func (t *tree) lowest(e entry) int { return deepest - t.depth - e.behind }

// shared is how many digits two keys begin with alike.
func (t *tree) shared(k, l key) int {
	for i := range t.digits() {
		if k.digit(i, t.addr) != l.digit(i, t.addr) {
			return i
		}
	}
	return t.digits()
}

// collect is every entry of the branch w, in order.
func (t *tree) collect(w *twig) []entry {
	all := make([]entry, 0, w.count+1)
	t.each(w, func(w *twig) { all = append(all, w.entries...) })
	return all
}

// insert adds e to entries, in place of another with the same key.
func (t *tree) insert(entries []entry, e entry) []entry {
	i, found := slices.BinarySearchFunc(entries, e.key, entry.compare)
	if found {
		entries[i] = e
		return entries
	}
	return slices.Insert(entries, i, e)
}

// each calls f for w and every twig below, in the order of their entries.
func (t *tree) each(w *twig, f func(*twig)) {
	f(w)
	for _, branch := range w.forks {
		if branch != nil {
			t.each(branch, f)
		}
	}
}

func (t *tree) touch(w *twig) { t.touched[t.id(w)] = w }

func (w *twig) isLeaf() bool { return w.forks == [fingers]*twig{} }

// heaviestFirst are the branches of w. One with many more entries than the others
// goes first, so that an address with a hundred ports is not far away.
func (w *twig) heaviestFirst() []*twig {
	branches := slices.DeleteFunc(slices.Clone(w.forks[:]), func(f *twig) bool { return f == nil })
	slices.SortStableFunc(branches, func(f, g *twig) int { return g.weight() - f.weight() })
	return branches
}

// weight is how many entries w has, as a power of four, so that it changes seldom.
func (w *twig) weight() int { return bits.Len(uint(w.count)) / 2 }

// sample is some key of the branch.
func (w *twig) sample() key {
	for !w.isLeaf() {
		for _, f := range w.forks {
			if f != nil {
				w = f
				break
			}
		}
	}
	return w.entries[0].key
}

func (e entry) compare(k key) int { return e.key.compare(k) }

// rules are those of the chain that w is.
func (t *tree) rules(w *twig) []iptables.Rule {
	var rules []iptables.Rule
	how := "-g"
	if w.level == 0 {
		how = "-j"
	}
	for _, f := range w.heaviestFirst() {
		common := prefix{f.sample(), t.reach(f), t.addr}
		rules = append(rules, iptables.Words(common.words(), how, t.id(f).Chain))
	}
	for _, e := range w.entries {
		rules = append(rules, t.line(e))
	}
	return rules
}

// reach is how many digits lead to w: a fork's are all that its entries share, so
// that few packets go there in vain. A leaf's stay as they are when an entry comes.
func (t *tree) reach(w *twig) int {
	if w.isLeaf() {
		return w.at.digits
	}
	return w.common
}

// line is the rule that e is in its leaf.
func (t *tree) line(e entry) iptables.Rule {
	return iptables.Words(prefix{e.key, t.digits(), t.addr}.words(), e.rule)
}

// read is the way back from line: the entry of the Service called name that r is,
// if it is one. It is known by the chain it leads to, or by its comment.
func (t *tree) read(r iptables.Rule, name sdk.Name) (entry, bool) {
	target := r.Target()
	about := strings.HasPrefix(r.Comment(), portName(name)+" ")
	if !about && !strings.HasSuffix(target, "-"+hash(portName(name)+name.Protocol.String())) {
		return entry{}, false
	}
	k, ok := caught(r, name.Family)
	if !ok || k.protocol != name.Protocol {
		return entry{}, false
	}
	e := entry{name: name, key: k}
	rest, ok := strings.CutPrefix(string(r), string(prefix{e.key, t.digits(), t.addr}.words())+" ")
	e.rule = iptables.Rule(rest)
	return e, ok
}

func unspecified(f sdk.Family) netip.Addr {
	if f == sdk.IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}
