// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/nftable"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// This file is the way back from elements.go: what a table serves, by its elements.

// A dump is the elements of all sets of one family.
type dump struct {
	ip
	nftable.Dump
}

// May are the sets that there may be.
func (f ip) May(names iter.Seq[string]) []nftnl.Set {
	timeouts := []time.Duration{longestTimeout}
	for set := range names {
		if t, is := timeoutOf(set); is {
			timeouts = append(timeouts, t)
		}
	}
	return layoutSets(f, whole(f, timeouts...))
}

// affinities are the timeouts of numbers.
func (d dump) affinities() map[number]time.Duration {
	all := make(map[number]time.Duration)
	for set, elements := range d.Dump {
		if t, is := timeoutOf(set); is {
			for key := range elements {
				all[numberIn(key)] = t
			}
		}
	}
	return all
}

// Services are those that elements serve.
func (f ip) Services(all nftable.Dump) map[sdk.Name]wanted { return dump{f, all}.services() }

func (d dump) services() map[sdk.Name]wanted {
	all, owners, timeouts := make(map[sdk.Name]wanted), make(map[number]sdk.Name), d.affinities()
	for _, p := range []index{{ip: d.ip}, {ip: d.ip, ports: true}} {
		slots := map[index]map[string][]netip.AddrPort{p: d.slots(p), near(p): d.slots(near(p))}
		sources := d.sources(p)
		for k, e := range d.Dump[p.of("frontends")] {
			name, f, ok := iptables.LabelledFrontend(e.Comment)
			proto, addr, sound := d.ReadKey(k, !p.ports)
			if !ok || !sound {
				continue
			}
			name.Protocol, name.Family = proto, d.Family
			w := all[name]
			w.frontends = append(w.frontends, frontend{f.Kind, addr, f.Policy, sources[k]})
			_, unserved := d.Dump[p.of("unserved")][k]
			w.served = !unserved
			d.keep(&w, f.Policy, slots[p][k])
			d.keep(&w, sdk.Cluster, slots[near(p)][k])
			n := numberIn(d.Dump[p.of(forList("keeps", f.Policy))][k].Data)
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
				if _, may := d.Dump["hairpin"][a+a]; may {
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
	width := d.KeyLen(!p.ports)
	all := make(map[string]map[uint32]netip.AddrPort)
	for k, e := range d.Dump[p.of("endpoints")] {
		if len(k) != width+4 {
			continue
		}
		if all[k[:width]] == nil {
			all[k[:width]] = make(map[uint32]netip.AddrPort)
		}
		all[k[:width]][binary.NativeEndian.Uint32([]byte(k[width:]))] = d.ReadDestination(e.Data)
	}
	dense := make(map[string][]netip.AddrPort, len(all))
	for k, slots := range all {
		for i := uint32(0); slots[i].IsValid(); i++ {
			dense[k] = append(dense[k], slots[i])
		}
	}
	return dense
}

// sources are the ranges of each key of an index that is gated.
func (d dump) sources(p index) map[string][]nftable.Span {
	all := make(map[string][]nftable.Span)
	width := d.KeyLen(!p.ports)
	for _, e := range d.Dump[p.of("allowed")] {
		if len(e.Key) != width+d.Addr().Len || len(e.KeyEnd) != len(e.Key) {
			continue
		}
		from, _ := netip.AddrFromSlice([]byte(e.Key[width:]))
		to, _ := netip.AddrFromSlice([]byte(e.KeyEnd[width:]))
		all[e.Key[:width]] = append(all[e.Key[:width]], nftable.Span{From: from, To: to})
	}
	for _, spans := range all {
		slices.SortFunc(spans, func(a, b nftable.Span) int { return a.From.Compare(b.From) })
	}
	return all
}
