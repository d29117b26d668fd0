// SPDX-License-Identifier: Apache-2.0

// Package tree arranges the rules of frontends in a tree of iptables chains, so that a packet is compared with
// few of them. It reports which chains a change affects, and never writes them: package rules does. Start with
// Tree.
package tree

import (
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

const (
	maxEntries  = 8 // entries in one chain
	maxBranches = 4 // branches of one chain
)

// Deepest is the maximum length of a path of chains. nf_tables accepts no longer one.
const Deepest = 15

// A Tree leads a packet to its entry. Each chain leads to at most four others, by the next two bits of the
// packet's address, protocol or port in which its entries differ. A chain at the end lists at most eight
// entries:
//
//	KUBE-SERVICES            -d 10.96.0.0/18 -j KUBE-VIP-10.96.0.0/18
//	KUBE-VIP-10.96.0.0/18    -d 10.96.16.0/20 -g KUBE-VIP-10.96.16.0/20
//	KUBE-VIP-10.96.16.0/20   -d 10.96.17.3/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-…
//
// The shape of the tree depends only on its entries and not on the order of additions, so a new process
// composes the tree that the previous one wrote. A change of an entry changes one chain, and sometimes its
// neighbours.
//
// The root uses -j: a packet without an entry returns to the root and continues there. The levels below use -g,
// which saves the packet the comparison with the remaining branches on the way back.
type Tree struct {
	root  iptables.ID
	stem  string // prefix of the names of the other chains
	addr  int    // number of digits of an address
	depth int    // length of the path from the hook to the root
	top   *node

	// touched are the chains whose rules may have changed; nil means removed.
	touched map[iptables.ID]*node
}

// An Entry matches the packets to one key.
type Entry struct {
	Key    Key
	Rule   iptables.Rule // what to do with them: "-j KUBE-SVC-…"
	Behind int           // length of the longest path of chains that starts at Rule's target
}

// A node is one chain of a tree: a leaf that lists entries, or a fork.
type node struct {
	id      iptables.ID
	at      prefix // common prefix of its entries; determines the name
	level   int
	entries []Entry // of a leaf, sorted
	common  int     // of a fork: index of the digit at which it forks
	forks   [maxBranches]*node
	count   int // number of entries here and below
}

// ByAddress returns a tree of frontends that differ by address, protocol and port. root is its first chain,
// depth the length of the path of chains from the hook to root, and stem the prefix of the names of the other
// chains.
func ByAddress(root iptables.ID, stem string, f sdk.Family, depth int) *Tree {
	return newTree(root, stem, addrDigits(f), depth)
}

// ByPort returns a tree of frontends that differ only by protocol and port.
func ByPort(root iptables.ID, stem string, depth int) *Tree { return newTree(root, stem, 0, depth) }

func newTree(root iptables.ID, stem string, addr, depth int) *Tree {
	t := &Tree{root: root, stem: stem, addr: addr, depth: depth}
	t.Reset()
	return t
}

// Reset removes all entries. Changes then returns only the chains of the new tree.
func (t *Tree) Reset() {
	t.touched = make(map[iptables.ID]*node)
	t.top = t.build(&node{id: t.root, at: prefix{addr: t.addr}}, nil)
}

// digits returns the number of digits of a key.
func (t *Tree) digits() int { return t.addr + 1 + portDigits }

// child returns a new branch of w for keys with these first digits.
func (t *Tree) child(w *node, key Key) *node {
	at := prefix{key, w.common + 1, t.addr}
	return &node{id: iptables.ID{Table: t.root.Table, Chain: t.stem + at.String()}, at: at, level: w.level + 1}
}

// Put adds e or replaces the entry with the same key.
func (t *Tree) Put(e Entry) { t.update(t.top, e.Key, &e) }

// Drop removes the entry with a key.
func (t *Tree) Drop(k Key) { t.update(t.top, k, nil) }

// update puts the entry with key k in the branch w, or removes it if e is nil.
func (t *Tree) update(w *node, k Key, e *Entry) {
	inside := !w.isLeaf() && t.commonDigits(w.sample(), k) >= w.common
	switch {
	case e != nil && (!inside || w.level >= t.maxLevel(*e)):
		t.rebuild(w, insert(t.collect(w), *e)) // the fork moves to an earlier digit, or becomes a leaf
		return
	case w.isLeaf():
		if i, found := slices.BinarySearchFunc(w.entries, k, Entry.compare); found {
			t.rebuild(w, slices.Delete(w.entries, i, i+1))
		}
		return
	case !inside:
		return
	}
	d := k.digit(w.common, t.addr)
	branch := w.forks[d]
	if branch == nil {
		if e != nil {
			w.forks[d] = t.build(t.child(w, k), []Entry{*e})
			t.touch(w)
			w.count++
		}
		return
	}
	count, reach, weight := branch.count, t.reach(branch), branch.weight()
	t.update(branch, k, e)
	w.count += branch.count - count
	if t.reach(branch) != reach || branch.weight() != weight {
		t.touch(w)
	}
	if branch.count == 0 || w.count <= maxEntries && branch.count < count {
		t.rebuild(w, t.collect(w))
	}
}

// rebuild builds the branch w again from entries.
func (t *Tree) rebuild(w *node, entries []Entry) {
	t.each(w, func(old *node) { t.touched[old.id] = nil })
	t.build(w, entries)
}

// build makes w the branch of entries.
func (t *Tree) build(w *node, entries []Entry) *node {
	*w = node{id: w.id, at: w.at, level: w.level, entries: entries, count: len(entries)}
	if len(entries) > maxEntries && !slices.ContainsFunc(entries, func(e Entry) bool { return w.level >= t.maxLevel(e) }) {
		w.entries = nil
		w.common = t.commonDigits(entries[0].Key, entries[len(entries)-1].Key)
		for len(entries) > 0 {
			k := entries[0].Key
			d := k.digit(w.common, t.addr)
			n, _ := slices.BinarySearchFunc(entries, d, func(e Entry, d byte) int {
				return int(e.Key.digit(w.common, t.addr)) - int(d) - 1 // the first entry beyond d
			})
			w.forks[d] = t.build(t.child(w, k), slices.Clone(entries[:n]))
			entries = entries[n:]
		}
	}
	t.touch(w)
	return w
}

// maxLevel returns the deepest level at which e may be listed, which depends on the chains behind it. A leaf at
// this level lists all its entries, however many.
func (t *Tree) maxLevel(e Entry) int { return Deepest - t.depth - e.Behind }

// commonDigits returns the number of leading digits that two keys have in common.
func (t *Tree) commonDigits(k, l Key) int {
	for i := range t.digits() {
		if k.digit(i, t.addr) != l.digit(i, t.addr) {
			return i
		}
	}
	return t.digits()
}

// collect returns all entries of the branch w, sorted. For a leaf it returns the leaf's own slice.
func (t *Tree) collect(w *node) []Entry {
	if w.isLeaf() {
		return w.entries
	}
	all := make([]Entry, 0, w.count+1)
	t.each(w, func(w *node) { all = append(all, w.entries...) })
	return all
}

// insert adds e to entries or replaces the entry with the same key.
func insert(entries []Entry, e Entry) []Entry {
	i, found := slices.BinarySearchFunc(entries, e.Key, Entry.compare)
	if found {
		entries[i] = e
		return entries
	}
	return slices.Insert(entries, i, e)
}

// each calls f for w and every node below, in the order of their entries.
func (t *Tree) each(w *node, f func(*node)) {
	f(w)
	for _, branch := range w.forks {
		if branch != nil {
			t.each(branch, f)
		}
	}
}

func (t *Tree) touch(w *node) { t.touched[w.id] = w }

func (w *node) isLeaf() bool { return w.forks == [maxBranches]*node{} }

// heaviestFirst returns the branches of w, those with many more entries than the others first. So the path to
// an address with a hundred ports is short.
func (w *node) heaviestFirst() []*node {
	branches := slices.DeleteFunc(slices.Clone(w.forks[:]), func(f *node) bool { return f == nil })
	slices.SortStableFunc(branches, func(f, g *node) int { return g.weight() - f.weight() })
	return branches
}

// weight returns the number of entries of w as a power of four, so that it changes seldom.
func (w *node) weight() int { return bits.Len(uint(w.count)) / 2 }

// sample returns any key of the branch.
func (w *node) sample() Key {
	for !w.isLeaf() {
		for _, f := range w.forks {
			if f != nil {
				w = f
				break
			}
		}
	}
	return w.entries[0].Key
}

func (e Entry) compare(k Key) int { return e.Key.Compare(k) }

// rules returns the rules of the chain w.
func (t *Tree) rules(w *node) []iptables.Rule {
	var rules []iptables.Rule
	how := "-g"
	if w.level == 0 {
		how = "-j"
	}
	for _, f := range w.heaviestFirst() {
		common := prefix{f.sample(), t.reach(f), t.addr}
		rules = append(rules, iptables.Words(common.words(), how, f.id.Chain))
	}
	for _, e := range w.entries {
		rules = append(rules, t.Line(e))
	}
	return rules
}

// reach returns the number of digits that the rule to w matches. For a fork these are all digits that its
// entries share, so that few packets enter in vain. For a leaf the number does not change when entries are
// added.
func (t *Tree) reach(w *node) int {
	if w.isLeaf() {
		return w.at.digits
	}
	return w.common
}

// Words returns the matches for packets to k.
func (t *Tree) Words(k Key) iptables.Rule { return prefix{k, t.digits(), t.addr}.words() }

// Line returns the rule of e in its leaf.
func (t *Tree) Line(e Entry) iptables.Rule { return iptables.Words(t.Words(e.Key), e.Rule) }

// Read is the inverse of Line: it returns the key and the rest of a rule that lists an entry. It is not ok for
// rules that lead to branches and for other rules. kube-proxy's rules are accepted although their comment comes
// before the port. The rest then begins with the comment.
func (t *Tree) Read(r iptables.Rule) (k Key, rest iptables.Rule, ok bool) {
	before := ""
	for word := range r.All() {
		switch before {
		case "-d":
			at, err := netip.ParsePrefix(word)
			if err != nil || !at.IsSingleIP() || at.Bits() != 2*t.addr {
				return k, "", false
			}
			k.Addr = at.Addr()
		case "-p":
			if k.Protocol = iptables.ProtocolCalled(word); k.Protocol == 0 {
				return k, "", false
			}
		case "--dport":
			port, err := strconv.ParseUint(word, 10, 16)
			if err != nil {
				return k, "", false // a range
			}
			k.Port = uint16(port)
		case "-j", "-g":
			if t.Has(iptables.ID{Table: t.root.Table, Chain: word}) {
				return k, "", false
			}
		}
		before = word
	}
	if t.addr > 0 && !k.Addr.IsValid() || t.addr == 0 && k.Port == 0 {
		return k, "", false
	}
	words, comment, text := string(t.Words(k))+" ", "", string(r)
	if at := strings.Index(text, "-m comment --comment "); at >= 0 && at < len(words) {
		behind := iptables.Rule(text[at:]).After("--comment")
		comment, text = text[at:len(text)-len(behind)]+" ", text[:at]+strings.TrimPrefix(string(behind), " ")
	}
	text, ok = strings.CutPrefix(text, words)
	return k, iptables.Rule(comment + text), ok
}

// Root returns the root chain.
func (t *Tree) Root() iptables.ID { return t.root }

// Has reports whether a chain belongs to the tree, by its name.
func (t *Tree) Has(id iptables.ID) bool {
	return id == t.root || id.Table == t.root.Table && strings.HasPrefix(id.Chain, t.stem)
}

// Touch marks the root as changed. The caller has rules of its own in the root.
func (t *Tree) Touch() { t.touch(t.top) }

// Changes returns the chains whose rules may have changed since the last call, and those that were removed.
// iptables.Chain.Level is the distance from the root.
func (t *Tree) Changes() (changed []iptables.Chain, removed []iptables.ID) {
	for id, w := range t.touched {
		if w == nil {
			removed = append(removed, id)
		} else {
			changed = append(changed, iptables.Chain{ID: id, Rules: t.rules(w), Level: w.level})
		}
	}
	t.touched = make(map[iptables.ID]*node) // a new map: iterating over one takes time in proportion to its largest size
	return changed, removed
}
