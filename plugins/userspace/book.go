// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
)

// A branch says which tree an entry hangs in.
type branch uint8

const (
	leadsPortal branch = iota // nat: by address, to the relay
	leadsPort                 // nat: node ports
	turnsPortal               // filter: the same two, of what is turned away
	turnsPort
	guards // filter: sockets of ours
	branches
)

// A book is what the tables of one family should say, and what they do say as far
// as we know. Only what was touched since the two were last the same is compared,
// so that a change costs what it changes.
type book struct {
	frame  frame
	trees  [branches]*tree.Tree
	pieces map[key]piece
	doors  []entry          // those of the frame that hang in a tree
	guards map[tree.Key]int // how many need each entry of that tree

	// What filter turns away no longer goes only once nat has taken it.
	leaving map[entryAt]entry
	parting map[iptables.ID]bool

	should  map[iptables.ID]page
	touched map[iptables.ID]bool

	have  map[iptables.ID]string // the rules of each chain of ours, as text
	jumps map[iptables.Jump]bool // the listed jumps that are there
	held  map[iptables.ID]bool   // chains of ours to which foreign rules lead
}

// A key says what a piece is for: a frontend, or the health port of a Service.
type key struct {
	caught place
	health sdk.Name
}

// A page is what one chain should say.
type page struct {
	level int // below the root of its tree; 0: it is a root, or in none
	text  string
}

// An entryAt is where an entry hangs.
type entryAt struct {
	in  branch
	key tree.Key
}

func (e entry) at() entryAt { return entryAt{e.in, e.Key} }

func newBook(family sdk.Family) *book {
	return &book{
		frame: frame{family: family},
		trees: [branches]*tree.Tree{
			leadsPortal: tree.ByAddress(vips, "KUBE-PV-", family, 2),
			leadsPort:   tree.ByPort(ports, "KUBE-PN-", 2),
			turnsPortal: tree.ByAddress(turned, "KUBE-PV-", family, 2),
			turnsPort:   tree.ByPort(turnedPorts, "KUBE-PN-", 2),
			guards:      tree.ByPort(nonLocal, "KUBE-PI-", 1),
		},
		pieces:  make(map[key]piece),
		guards:  make(map[tree.Key]int),
		leaving: make(map[entryAt]entry),
		parting: make(map[iptables.ID]bool),
		should:  make(map[iptables.ID]page),
		touched: make(map[iptables.ID]bool),
		have:    make(map[iptables.ID]string),
		jumps:   make(map[iptables.Jump]bool),
		held:    make(map[iptables.ID]bool),
	}
}

// put makes p the piece of k: the new entries and chains at once, and those of nat
// that are no longer needed go. Those of filter only leave, see settle.
func (b *book) put(k key, p piece) {
	old := b.pieces[k]
	for _, c := range p.chains {
		delete(b.parting, c.ID)
		b.write(c.ID, 0, c.Rules)
	}
	for _, e := range p.entries {
		b.hang(e)
	}
	for _, e := range old.entries {
		again := slices.ContainsFunc(p.entries, func(n entry) bool { return n.at() == e.at() })
		if e.in == guards || !again {
			b.cut(e)
		}
	}
	for _, c := range old.chains {
		if again := slices.ContainsFunc(p.chains, func(n iptables.Chain) bool { return n.ID == c.ID }); again {
			continue
		}
		if c.ID.Table == "filter" {
			b.parting[c.ID] = true
		} else {
			b.erase(c.ID)
		}
	}
	if b.pieces[k] = p; len(p.entries) == 0 {
		delete(b.pieces, k)
	}
}

// hang adds e to its tree.
func (b *book) hang(e entry) {
	if e.in == guards {
		b.guards[e.Key]++
	}
	delete(b.leaving, e.at())
	b.trees[e.in].Put(e.Entry)
}

// cut takes e out, or has it leave, unless somebody else still needs it.
func (b *book) cut(e entry) {
	if e.in == guards {
		if b.guards[e.Key]--; b.guards[e.Key] > 0 {
			return
		}
		delete(b.guards, e.Key)
	}
	if b.trees[e.in].Root().Table == "filter" {
		b.leaving[e.at()] = e
		return
	}
	b.trees[e.in].Drop(e.Entry)
}

// settle brings every page up to date. It returns what the filter chains should say
// while nat changes: what is to come, and still all that leaves.
func (b *book) settle() (between map[iptables.ID]string) {
	for _, c := range b.frame.chains() {
		b.write(c.ID, 0, c.Rules)
	}
	doors := b.frame.guards()
	for _, e := range doors {
		b.hang(e)
	}
	for _, e := range b.doors {
		b.cut(e)
	}
	b.doors = doors
	b.leaf()
	between = make(map[iptables.ID]string)
	for id := range b.touched {
		if page, ok := b.should[id]; ok && id.Table == "filter" {
			between[id] = page.text
		}
	}
	for _, e := range b.leaving {
		b.trees[e.in].Drop(e.Entry)
	}
	for id := range b.parting {
		b.erase(id)
	}
	clear(b.leaving)
	clear(b.parting)
	b.leaf()
	return between
}

// leaf writes the chains of the trees that were touched.
func (b *book) leaf() {
	for _, t := range b.trees {
		for _, c := range t.Changes() {
			if c.Gone {
				b.erase(c.ID)
				continue
			}
			b.write(c.ID, c.Level, c.Rules)
		}
	}
}

func (b *book) write(id iptables.ID, level int, rules []iptables.Rule) {
	p := page{level, iptables.Join(rules)}
	if old, ok := b.should[id]; !ok || old != p {
		b.should[id] = p
		b.touched[id] = true
	}
}

func (b *book) erase(id iptables.ID) {
	if _, ok := b.should[id]; ok {
		delete(b.should, id)
		b.touched[id] = true
	}
}

// adopt takes what the kernel has for what we did: from now on only what differs is
// written.
func (b *book) adopt(t iptables.Tables) {
	clear(b.have)
	clear(b.jumps)
	clear(b.held)
	for id, rules := range t {
		if isOurs(id) {
			b.have[id] = iptables.Join(rules)
			b.touched[id] = true
			continue
		}
		for _, r := range rules {
			to := iptables.ID{Table: id.Table, Chain: r.Target()}
			switch j := (iptables.Jump{At: id, Rule: r}); {
			case !isOurs(to):
			case j.Listed():
				b.jumps[j] = true
			default:
				b.held[to] = true
			}
		}
	}
	for id := range b.should {
		b.touched[id] = true
	}
}

// done notes that blocks were written.
func (b *book) done(blocks []iptables.Block) {
	for _, block := range blocks {
		for _, c := range block.Whole {
			b.have[c.ID] = iptables.Join(c.Rules)
			if page := b.should[c.ID]; page.text == b.have[c.ID] {
				b.have[c.ID] = page.text // one copy for both
			}
		}
		for _, id := range block.Remove {
			delete(b.have, id)
		}
		for _, j := range block.Insert {
			b.jumps[j] = true
		}
		for _, j := range block.Delete {
			delete(b.jumps, j)
		}
	}
}

// The names of chains that are ours, or of kube-proxy's userspace mode, whose place
// we take: these words, and what begins with one of those.
var (
	ourChains = []string{"KUBE-NODEPORT-ANY", "KUBE-NODEPORT-CONTAINER", "KUBE-NODEPORT-HOST", "KUBE-NODEPORT-NON-LOCAL"}
	ourStems  = []string{"KUBE-PORTALS-", "KUBE-PV-", "KUBE-PN-", "KUBE-PI-", ownStem}
)

func isOurs(id iptables.ID) bool {
	return (id.Table == "nat" || id.Table == "filter") && (slices.Contains(ourChains, id.Chain) ||
		slices.ContainsFunc(ourStems, func(stem string) bool { return strings.HasPrefix(id.Chain, stem) }))
}

// shown is the role that the jumps mean.
func (b *book) shown() sdk.Role {
	for j := range maps.Keys(b.jumps) {
		if j.At == nat("PREROUTING") && j.Rule.Target() == container.Chain {
			return sdk.Active
		}
	}
	return sdk.Standby
}

// formerDoors are the doors to which the kernel's rules lead: those of the process
// before this one, unless zero.
func (b *book) formerDoors() (doors [3]uint16) {
	for from, id := range map[sdk.Origin]iptables.ID{sdk.OnPod: toPods, sdk.OnNode: toNode, sdk.Elsewhere: toAny} {
		if m := ledTo.FindStringSubmatch(b.have[id]); m != nil {
			port, err := strconv.ParseUint(m[1], 10, 16)
			if err == nil {
				doors[from] = uint16(port)
			}
		}
	}
	return doors
}

var ledTo = regexp.MustCompile(`--to-(?:ports|destination) (?:\S+:)?(\d+)`)
