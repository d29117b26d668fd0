// SPDX-License-Identifier: Apache-2.0

// Package tree finds one rule among many by few looks: it hangs the rules of
// frontends in a tree of iptables chains, and says which chains a change touches.
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
	leaf    = 8 // how many entries one chain lists
	fingers = 4 // how many branches one chain leads to
)

// Deepest is how many chains may lie one behind the other; nft takes no more.
const Deepest = 15

// A Tree leads a packet to its entry. Each of its chains leads on to at most four,
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
type Tree struct {
	root  iptables.ID
	stem  string // what the names of the other chains begin with
	addr  int    // digits of an address
	depth int    // levels below the root
	top   *twig

	// touched are the chains whose rules may be others now; nil: gone.
	touched map[iptables.ID]*twig
}

// An Entry catches the packets to one key.
type Entry struct {
	Key    Key
	Rule   iptables.Rule // what to do with them: "-j KUBE-SVC-…"
	Behind int           // how many chains lie one behind the other there
}

// A Chain is one of a tree's, with its rules.
type Chain struct {
	ID    iptables.ID
	Level int // how far below the root it hangs
	Rules []iptables.Rule
	Gone  bool // the tree has no such chain any more
}

// A twig is one chain of a tree: a leaf that lists entries, or a fork.
type twig struct {
	id      iptables.ID
	at      prefix // what its entries have in common, and what it is called by
	level   int
	entries []Entry // of a leaf, in order
	common  int     // of a fork: the digit it forks at
	forks   [fingers]*twig
	count   int // entries here and below
}

// ByAddress is a tree of frontends that are told apart by their addresses of family,
// and then by protocol and port. It hangs in the chain root, so many chains below a
// hook, and the names of its other chains begin with stem.
func ByAddress(root iptables.ID, stem string, f sdk.Family, depth int) *Tree {
	return grown(root, stem, addrDigits(f), depth)
}

// ByPort is a tree of frontends that differ by protocol and port alone.
func ByPort(root iptables.ID, stem string, depth int) *Tree { return grown(root, stem, 0, depth) }

func grown(root iptables.ID, stem string, addr, depth int) *Tree {
	t := &Tree{root: root, stem: stem, addr: addr, depth: depth}
	t.Reset()
	return t
}

// Reset removes all entries. What Changes returns after it is of a tree that is new.
func (t *Tree) Reset() {
	t.touched = make(map[iptables.ID]*twig)
	t.top = t.grow(&twig{id: t.root, at: prefix{addr: t.addr}}, nil)
}

// digits is how many a key has.
func (t *Tree) digits() int { return t.addr + 1 + portDigits }

// below is a branch of w for what has key's first digits, and no entry yet.
func (t *Tree) below(w *twig, key Key) *twig {
	at := prefix{key, w.common + 1, t.addr}
	return &twig{id: iptables.ID{Table: t.root.Table, Chain: t.stem + at.String()}, at: at, level: w.level + 1}
}

// Put adds e, in place of another with the same key.
func (t *Tree) Put(e Entry) { t.putIn(t.top, e) }

func (t *Tree) putIn(w *twig, e Entry) {
	if w.isLeaf() || t.shared(w.sample(), e.Key) < w.common || w.level >= t.lowest(e) {
		t.regrow(w, insert(t.collect(w), e)) // a fork forks earlier now, or not at all
		return
	}
	d := e.Key.digit(w.common, t.addr)
	if w.forks[d] != nil {
		t.within(w, w.forks[d], func(f *twig) { t.putIn(f, e) })
		return
	}
	w.forks[d] = t.grow(t.below(w, e.Key), []Entry{e})
	t.touch(w)
	w.count++
}

// within changes a branch of w, and keeps w true to it.
func (t *Tree) within(w, branch *twig, change func(*twig)) {
	count, reach, weight := branch.count, t.reach(branch), branch.weight()
	change(branch)
	w.count += branch.count - count
	if t.reach(branch) != reach || branch.weight() != weight {
		t.touch(w)
	}
}

// Drop removes the entry with a key.
func (t *Tree) Drop(k Key) { t.dropIn(t.top, k) }

func (t *Tree) dropIn(w *twig, k Key) {
	if w.isLeaf() {
		i, found := slices.BinarySearchFunc(w.entries, k, Entry.compare)
		if found {
			t.regrow(w, slices.Delete(w.entries, i, i+1))
		}
		return
	}
	if t.shared(w.sample(), k) < w.common {
		return
	}
	f := w.forks[k.digit(w.common, t.addr)]
	if f == nil {
		return
	}
	before := f.count
	t.within(w, f, func(f *twig) { t.dropIn(f, k) })
	if f.count == 0 || w.count <= leaf && f.count < before {
		t.regrow(w, t.collect(w))
	}
}

// regrow makes the branch w anew, from entries.
func (t *Tree) regrow(w *twig, entries []Entry) {
	t.each(w, func(old *twig) { t.touched[old.id] = nil })
	t.grow(w, entries)
}

// grow makes w the branch of entries.
func (t *Tree) grow(w *twig, entries []Entry) *twig {
	*w = twig{id: w.id, at: w.at, level: w.level, entries: entries, count: len(entries)}
	if len(entries) > leaf && !slices.ContainsFunc(entries, func(e Entry) bool { return w.level >= t.lowest(e) }) {
		w.entries = nil
		w.common = t.shared(entries[0].Key, entries[len(entries)-1].Key)
		for len(entries) > 0 {
			k := entries[0].Key
			d := k.digit(w.common, t.addr)
			n, _ := slices.BinarySearchFunc(entries, d, func(e Entry, d byte) int {
				return int(e.Key.digit(w.common, t.addr)) - int(d) - 1 // the first beyond d
			})
			w.forks[d] = t.grow(t.below(w, k), slices.Clone(entries[:n]))
			entries = entries[n:]
		}
	}
	t.touch(w)
	return w
}

// lowest is the level below which e must not hang, because of the chains that lie
// behind it. A leaf so low lists whatever is left.
func (t *Tree) lowest(e Entry) int { return Deepest - t.depth - e.Behind }

// shared is how many digits two keys begin with alike.
func (t *Tree) shared(k, l Key) int {
	for i := range t.digits() {
		if k.digit(i, t.addr) != l.digit(i, t.addr) {
			return i
		}
	}
	return t.digits()
}

// collect is every entry of the branch w, in order: of a leaf its own list.
func (t *Tree) collect(w *twig) []Entry {
	if w.isLeaf() {
		return w.entries
	}
	all := make([]Entry, 0, w.count+1)
	t.each(w, func(w *twig) { all = append(all, w.entries...) })
	return all
}

// insert adds e to entries, in place of another with the same key.
func insert(entries []Entry, e Entry) []Entry {
	i, found := slices.BinarySearchFunc(entries, e.Key, Entry.compare)
	if found {
		entries[i] = e
		return entries
	}
	return slices.Insert(entries, i, e)
}

// each calls f for w and every twig below, in the order of their entries.
func (t *Tree) each(w *twig, f func(*twig)) {
	f(w)
	for _, branch := range w.forks {
		if branch != nil {
			t.each(branch, f)
		}
	}
}

func (t *Tree) touch(w *twig) { t.touched[w.id] = w }

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
func (w *twig) sample() Key {
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

// rules are those of the chain that w is.
func (t *Tree) rules(w *twig) []iptables.Rule {
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

// reach is how many digits lead to w: a fork's are all that its entries share, so
// that few packets go there in vain. A leaf's stay as they are when an entry comes.
func (t *Tree) reach(w *twig) int {
	if w.isLeaf() {
		return w.at.digits
	}
	return w.common
}

// Words are the conditions of a rule about packets to k.
func (t *Tree) Words(k Key) iptables.Rule { return prefix{k, t.digits(), t.addr}.words() }

// Line is the rule that e is in its leaf.
func (t *Tree) Line(e Entry) iptables.Rule { return iptables.Words(t.Words(e.Key), e.Rule) }

// Read is the way back from Line: the key and the rest of a rule that lists an entry. Rules that lead on to branches, and
// strange ones, do not. kube-proxy's rules do, though they have their comment before the port: the rest begins with it.
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

// Root is the chain that the tree hangs in.
func (t *Tree) Root() iptables.ID { return t.root }

// Has reports whether a chain is one of the tree's, by its name.
func (t *Tree) Has(id iptables.ID) bool {
	return id == t.root || id.Table == t.root.Table && strings.HasPrefix(id.Chain, t.stem)
}

// Touch has the root among the next changes, for a caller that writes something beside it.
func (t *Tree) Touch() { t.touch(t.top) }

// Changes are the chains whose rules may be others than at the last call.
func (t *Tree) Changes() []Chain {
	all := make([]Chain, 0, len(t.touched))
	for id, w := range t.touched {
		c := Chain{ID: id, Gone: w == nil}
		if w != nil {
			c.Level, c.Rules = w.level, t.rules(w)
		}
		all = append(all, c)
	}
	t.touched = make(map[iptables.ID]*twig) // small again: to walk a map costs its largest size
	return all
}
