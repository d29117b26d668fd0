// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// An observed is what the kernel has, as it was read, and then as it was written.
type observed struct {
	generation uint32 // of the rule set, when it was read
	batches    uint32 // of this process, until then

	there     bool // the table is
	taken     bool // this process's socket owns it
	flags     uint32
	otherwise bool // a set has another shape than it should have: another version made it
	sets      map[string]bool
	chains    map[string]seen
	last      number // the one that was given last

	services       map[sdk.Name]wanted
	references     map[place]int  // how many Services have an element that they share
	counts         map[string]int // elements, by set
	total          int            // elements in all sets
	own            []element
	stray, missing []element // beside those of services
}

// role is the one that base chains show.
func (o observed) role() sdk.Role {
	for _, shows := range []struct {
		chain string
		role  sdk.Role
	}{{"nat-prerouting", sdk.Active}, {"nat-postrouting", sdk.Draining}} {
		if _, there := o.chains[shows.chain]; there {
			return shows.role
		}
	}
	return sdk.Standby
}

// without is an o that has no table.
func (o observed) without() observed {
	return observed{
		generation: o.generation, batches: o.batches, there: o.there, otherwise: o.otherwise, last: o.last,
		sets: make(map[string]bool), chains: make(map[string]seen), services: make(map[sdk.Name]wanted),
		references: make(map[place]int), counts: make(map[string]int),
	}
}

// serves notes that a change was made.
func (o *observed) serves(c *change) {
	if len(c.to.frontends) == 0 {
		delete(o.services, c.name)
	} else {
		o.services[c.name] = c.to
	}
}

// free is a number that no Service has. A process counts on: none lives so long that it gets to
// the first again.
func (o *observed) free() number {
	o.last++
	return o.last
}

// read reads the table.
func read(ctx context.Context, conn *nftnl.Conn, f ip) (observed, error) {
	o := observed{}.without()
	list := conn.List(f.nft(), table)
	var err error
	if o.generation, err = conn.Generation(ctx); err != nil {
		return o, err
	}
	t, err := list.Table(ctx)
	if err != nil || t == nil {
		return o, err
	}
	o.there, o.flags = true, t.Flags
	chains, err := list.Chains(ctx)
	if err != nil {
		return o, err
	}
	rules, err := list.Rules(ctx, "")
	if err != nil {
		return o, err
	}
	for name, c := range chains {
		o.chains[name] = seen{chain: chain{name: name, hook: c.Hook}, read: rules[name], raw: true}
	}
	sets, err := list.Sets(ctx)
	if err != nil {
		return o, err
	}
	d := dump{ip: f, sets: make(map[string]map[string]nftnl.Element)}
	for name, s := range sets {
		o.sets[name] = true
		if s.Timeout > 0 {
			continue // its elements come from packets
		}
		elements, err := list.Elements(ctx, name)
		if err != nil {
			return o, err
		}
		in := make(map[string]nftnl.Element, len(elements))
		for _, e := range elements {
			in[e.Key+e.KeyEnd] = e
		}
		d.sets[name] = in
		o.counts[name] = len(elements)
		o.total += len(elements)
	}
	o.otherwise = slices.ContainsFunc(d.layout(), func(s nftnl.Set) bool {
		seen, there := sets[s.Name]
		return there && !seen.Fits(s)
	})
	o.understand(d)
	return o, nil
}

// understand finds out which Services the elements serve, and what is of none.
func (o *observed) understand(d dump) {
	o.services = d.services()
	mine := make(map[string]bool)
	for _, s := range d.layout() {
		mine[s.Name] = true
	}
	for name, w := range o.services {
		o.last = max(o.last, w.number)
		for _, e := range w.elements(name) {
			seen, there := d.sets[e.set][e.Key+e.KeyEnd]
			switch {
			case e.shared():
				o.references[e.place()]++
			case there && seen == e.Element:
				delete(d.sets[e.set], e.Key+e.KeyEnd)
				continue
			}
			if !there || seen != e.Element {
				o.missing = append(o.missing, e)
			}
		}
	}
	for set, elements := range d.sets {
		for _, k := range elements {
			switch e := (element{set, k}); {
			case set == "own":
				o.own = append(o.own, e)
			case mine[set] && (o.references[e.place()] == 0 || k != nftnl.Element{Key: k.Key}):
				o.stray = append(o.stray, e)
			}
		}
	}
}

// A dump is the elements of all sets of one family, by their keys.
type dump struct {
	ip
	sets map[string]map[string]nftnl.Element
}

// layout are the sets that there may be.
func (d dump) layout() []nftnl.Set {
	timeouts := []time.Duration{longestTimeout}
	for set := range d.sets {
		if t, is := timeoutOf(set); is {
			timeouts = append(timeouts, t)
		}
	}
	return layoutSets(d.ip, whole(d.ip, timeouts...))
}

// affinities are the timeouts of numbers.
func (d dump) affinities() map[number]time.Duration {
	all := make(map[number]time.Duration)
	for set, elements := range d.sets {
		if t, is := timeoutOf(set); is {
			for key := range elements {
				all[numberIn(key)] = t
			}
		}
	}
	return all
}

// services are those that the elements serve.
func (d dump) services() map[sdk.Name]wanted {
	all, owners, timeouts := make(map[sdk.Name]wanted), make(map[number]sdk.Name), d.affinities()
	for _, p := range []index{{ip: d.ip}, {ip: d.ip, ports: true}} {
		slots := map[index]map[string][]netip.AddrPort{p: d.slots(p), near(p): d.slots(near(p))}
		sources := d.sources(p)
		for k, e := range d.sets[p.of("frontends")] {
			name, kind, policy, ok := labelled(e.Comment)
			proto, addr, sound := d.frontend(p, k)
			if !ok || !sound {
				continue
			}
			name.Protocol, name.Family = proto, d.Family
			w := all[name]
			w.frontends = append(w.frontends, frontend{kind, addr, policy, sources[k]})
			_, unserved := d.sets[p.of("unserved")][k]
			w.served = !unserved
			d.keep(&w, policy, slots[p][k])
			d.keep(&w, sdk.Cluster, slots[near(p)][k])
			n := numberIn(d.sets[p.of(forList("keeps", policy))][k].Data)
			if owner, taken := owners[n]; timeouts[n] > 0 && (!taken || owner == name) {
				w.number, w.affinity, owners[n] = n, timeouts[n], name
			}
			all[name] = w
		}
	}
	for name, w := range all {
		for _, p := range w.policies() {
			for _, ep := range w.lists[p] {
				a := string(ep.Addr().AsSlice())
				if _, may := d.sets["hairpin"][a+a]; may {
					w.hairpin = append(w.hairpin, ep.Addr())
				}
			}
		}
		w.normalize()
		all[name] = w
	}
	return all
}

// keep notes what a list is.
func (d dump) keep(w *wanted, p sdk.Policy, list []netip.AddrPort) {
	if len(list) > 0 && len(w.lists[p]) == 0 {
		w.lists[p] = list
	}
}

// near is the index of the same frontends for pods of the node and the node itself.
func near(p index) index {
	p.near = true
	return p
}

// slots are the endpoints of each key of an index. What is behind a gap is none.
func (d dump) slots(p index) map[string][]netip.AddrPort {
	width := d.width(p)
	all := make(map[string]map[uint32]netip.AddrPort)
	for k, e := range d.sets[p.of("endpoints")] {
		if len(k) != width+4 {
			continue
		}
		if all[k[:width]] == nil {
			all[k[:width]] = make(map[uint32]netip.AddrPort)
		}
		all[k[:width]][binary.NativeEndian.Uint32([]byte(k[width:]))] = d.destination(e.Data)
	}
	dense := make(map[string][]netip.AddrPort, len(all))
	for k, slots := range all {
		for i := uint32(0); slots[i].IsValid(); i++ {
			dense[k] = append(dense[k], slots[i])
		}
	}
	return dense
}

// width is how long the keys of an index are.
func (d dump) width(p index) int {
	if p.ports {
		return 8
	}
	return 8 + d.addr().Len
}

// destination reads an address and a port.
func (f ip) destination(data string) netip.AddrPort {
	n := f.addr().Len
	if len(data) < n+2 {
		return netip.AddrPort{}
	}
	addr, _ := netip.AddrFromSlice([]byte(data[:n]))
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16([]byte(data[n:])))
}

// frontend reads a key.
func (d dump) frontend(p index, k string) (proto sdk.Protocol, at netip.AddrPort, ok bool) {
	if len(k) != d.width(p) {
		return 0, at, false
	}
	addr := pick(d.ip, netip.IPv4Unspecified(), netip.IPv6Unspecified())
	if !p.ports {
		addr, _ = netip.AddrFromSlice([]byte(k[:d.addr().Len]))
		k = k[d.addr().Len:]
	}
	for of, number := range numbers {
		if k[:1] == number {
			proto = of
		}
	}
	return proto, netip.AddrPortFrom(addr, binary.BigEndian.Uint16([]byte(k[4:]))), proto != 0
}

// sources are the ranges of each key of an index that is gated.
func (d dump) sources(p index) map[string][]span {
	all := make(map[string][]span)
	width := d.width(p)
	for _, e := range d.sets[p.of("allowed")] {
		if len(e.Key) != width+d.addr().Len || len(e.KeyEnd) != len(e.Key) {
			continue
		}
		from, _ := netip.AddrFromSlice([]byte(e.Key[width:]))
		to, _ := netip.AddrFromSlice([]byte(e.KeyEnd[width:]))
		all[e.Key[:width]] = append(all[e.Key[:width]], span{from, to})
	}
	for _, spans := range all {
		slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	}
	return all
}
