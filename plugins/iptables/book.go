// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"maps"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
)

// A branch says which tree an entry hangs in.
type branch uint8

const (
	servedAddrs   branch = iota // nat: Services by their own addresses
	servedPorts                 // nat: node ports
	unservedAddrs               // filter: the same two, of what is turned away
	unservedPorts
	healthPorts // filter: health-check ports, which a strict INPUT must let in
	branches
)

// servedTree is where f is caught when somebody may answer.
func servedTree(f sdk.Frontend) branch {
	if f.Addr.Addr().IsUnspecified() {
		return servedPorts
	}
	return servedAddrs
}

// unservedTree is where f is caught when nobody may.
func unservedTree(f sdk.Frontend) branch { return servedTree(f) + unservedAddrs }

// A book is what the tables of one family should say, and what they do say as far
// as we know. Only what was touched since the two were last the same is compared.
type book struct {
	ground ground
	trees  [branches]*tree.Tree
	pieces map[sdk.Name]piece
	health map[uint16]int // how many Services name the port

	// whole says that the book has had all Services of this session. Before, nobody
	// knows which chains are too many.
	whole bool

	// sweeps is how many chains that are of no use any more one plan removes; zero: all.
	sweeps int

	should  map[iptables.ID]page
	touched map[iptables.ID]bool

	have    map[iptables.ID]string // the rules of each chain of ours, as text
	jumps   map[iptables.Jump]bool // the listed jumps that are there
	held    map[iptables.ID]bool   // the chains of ours to which foreign rules lead
	largest int                    // how many chains there have been since the maps were made

	rules map[string]int // how many rules of each table are in have
}

// A page is what one chain should say, and for which Service it does.
type page struct {
	name  sdk.Name // none for what serves all
	level int      // as of chain
	text  string   // the rules, a line each
}

func newBook(family sdk.Family) *book {
	return &book{
		ground: ground{family: family},
		trees: [branches]*tree.Tree{
			servedAddrs:   tree.ByAddress(nat(services), "KUBE-VIP-", family, 1),
			servedPorts:   tree.ByPort(nat(nodePorts), "KUBE-NP-", 2),
			unservedAddrs: tree.ByAddress(filter(services), "KUBE-VIP-", family, 1),
			unservedPorts: tree.ByPort(filter(turnedAway), "KUBE-NP-", 2),
			healthPorts:   tree.ByPort(filter(nodePorts), "KUBE-HC-", 1),
		},
		pieces:  make(map[sdk.Name]piece),
		health:  make(map[uint16]int),
		should:  make(map[iptables.ID]page),
		touched: make(map[iptables.ID]bool),
		have:    make(map[iptables.ID]string),
		jumps:   make(map[iptables.Jump]bool),
		held:    make(map[iptables.ID]bool),
		rules:   make(map[string]int),
	}
}

// setGround writes the fixed chains, and those in which the trees hang.
func (b *book) setGround(g ground) {
	if b.ground.localhost && !g.localhost {
		b.erase(filter(guard))
	}
	b.ground = g
	for _, c := range g.chains() {
		b.write(sdk.Name{}, c)
	}
	for _, t := range b.trees {
		t.Touch()
	}
	b.leaf()
}

// put enters the pieces of Services, all at once: the new chains and entries first,
// then what is no longer needed is taken out. It returns what the filter chains
// should say between the two, so that who goes from one to the other is never
// without an answer.
func (b *book) put(pieces map[sdk.Name]piece) (between map[iptables.ID]string) {
	for name, p := range pieces {
		b.grow(name, p)
	}
	b.leaf()
	between = make(map[iptables.ID]string)
	for id := range b.touched {
		if page, ok := b.should[id]; ok && id.Table == "filter" {
			between[id] = page.text
		}
	}
	for name, p := range pieces {
		b.prune(name, b.pieces[name], p)
	}
	b.leaf()
	for name, p := range pieces {
		b.pieces[name] = p
		if p.empty() {
			delete(b.pieces, name)
		}
	}
	return between
}

func (p piece) empty() bool { return len(p.chains) == 0 && len(p.entries) == 0 && p.health == 0 }

// grow adds what p has.
func (b *book) grow(name sdk.Name, p piece) {
	for _, c := range p.chains {
		b.write(name, c)
	}
	b.hang(p)
	if p.health != 0 {
		b.health[p.health]++
		b.trees[healthPorts].Put(healthEntry(p.health))
	}
}

func (b *book) hang(p piece) {
	for _, e := range p.entries {
		b.trees[e.in].Put(e.Entry)
	}
}

// prune takes out what old had and p has not.
func (b *book) prune(name sdk.Name, old, p piece) {
	keep := make(map[iptables.ID]bool, len(p.chains))
	for _, c := range p.chains {
		keep[c.ID] = true
	}
	for _, c := range old.chains {
		if !keep[c.ID] && b.should[c.ID].name == name {
			b.erase(c.ID)
		}
	}
	caught := make(map[place]bool, len(p.entries))
	for _, e := range p.entries {
		caught[place{e.in, e.Key}] = true
	}
	for _, e := range old.entries {
		if !caught[place{e.in, e.Key}] {
			b.trees[e.in].Drop(e.Entry)
		}
	}
	if old.health != 0 {
		if b.health[old.health]--; b.health[old.health] == 0 {
			delete(b.health, old.health)
			b.trees[healthPorts].Drop(healthEntry(old.health))
		}
	}
}

// A place is where an entry hangs.
type place struct {
	in  branch
	key tree.Key
}

// healthEntry lets in who asks on port how many endpoints this node has.
func healthEntry(port uint16) tree.Entry {
	return tree.Entry{Key: tree.Key{Protocol: sdk.TCP, Port: port}, Rule: "-j ACCEPT"}
}

// leaf writes the chains of the trees that were touched.
func (b *book) leaf() {
	for i, t := range b.trees {
		for _, c := range t.Changes() {
			if c.Gone {
				b.erase(c.ID)
				continue
			}
			if c.Level == 0 {
				c.Rules = b.rooted(branch(i), c.Rules)
			}
			b.write(sdk.Name{}, iptables.Chain{ID: c.ID, Rules: c.Rules, Level: c.Level})
		}
	}
}

// rooted is the chain that a tree hangs in, with what stands before and after it.
func (b *book) rooted(which branch, rules []iptables.Rule) []iptables.Rule {
	switch which {
	case servedAddrs:
		return append(rules, b.ground.toNode(nodePorts)...)
	case unservedAddrs:
		rules = append(rules, b.ground.toNode(turnedAway)...)
		head := append(b.ground.localhostCount(), "-m conntrack --ctstate DNAT -j RETURN") // nat has found an endpoint
		return append(head, rules...)
	}
	return rules
}

func (b *book) write(name sdk.Name, c iptables.Chain) {
	p := page{name, c.Level, iptables.Join(c.Rules)}
	if old, ok := b.should[c.ID]; ok && old == p {
		return
	}
	b.should[c.ID] = p
	b.touched[c.ID] = true
}

func (b *book) erase(id iptables.ID) {
	if _, ok := b.should[id]; ok {
		delete(b.should, id)
		b.touched[id] = true
	}
}

// settled forgets what was touched and now is as it should be.
func (b *book) settled() {
	touched := b.touched
	b.touched = make(map[iptables.ID]bool) // small again: to walk a map costs its largest size
	for id := range touched {
		_, wanted := b.should[id]
		if _, there := b.have[id]; there && !wanted {
			b.touched[id] = true
		}
	}
	b.shrink()
}

// shrink makes the maps of chains anew when many have gone: a map keeps the size that it
// had when it was largest.
func (b *book) shrink() {
	n := max(len(b.have), len(b.should))
	if b.largest = max(b.largest, n); 3*n > 2*b.largest {
		return
	}
	b.largest = n
	b.have, b.should, b.pieces = anew(b.have), anew(b.should), anew(b.pieces)
}

func anew[K comparable, V any](old map[K]V) map[K]V {
	m := make(map[K]V, len(old))
	maps.Copy(m, old)
	return m
}

// hold notes what the kernel has for chain id.
func (b *book) hold(id iptables.ID, text string) {
	b.rules[id.Table] += strings.Count(text, "\n") - strings.Count(b.have[id], "\n")
	b.have[id] = text
}

// lose notes that the kernel has no chain id.
func (b *book) lose(id iptables.ID) {
	b.rules[id.Table] -= strings.Count(b.have[id], "\n")
	delete(b.have, id)
}
