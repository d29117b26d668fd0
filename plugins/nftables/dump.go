// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// This file is the way back from elements.go: which Services a table serves, by its elements.

// A dump is the elements of a table, sorted by what they say.
type dump struct {
	ip
	entries   map[entryKey]entryValue
	slots     map[entryKey]map[uint32]netip.AddrPort // the endpoints of a frontend's key, in the set that has them
	sources   map[entryKey][]span                    // the ranges of a frontend's key that is gated
	timeouts  map[number]time.Duration
	frontends []entryKey
}

// newDump sorts entries. Elements whose keys have another length than they should are left out.
func newDump(f ip, entries map[entryKey]entryValue) dump {
	d := dump{
		ip: f, entries: entries, slots: make(map[entryKey]map[uint32]netip.AddrPort), sources: make(map[entryKey][]span),
		timeouts: make(map[number]time.Duration),
	}
	type role struct {
		what  string
		width int
	}
	roles := make(map[string]role)
	for _, p := range indexes(f) {
		width := d.KeyLen(!p.ports)
		roles[p.of("endpoints")], roles[p.of("allowed")] = role{"endpoints", width}, role{"allowed", width}
		if !p.near {
			roles[p.of("frontends")] = role{"frontends", width}
		}
	}
	for k, v := range entries {
		if k.kind != ofElement {
			continue
		}
		switch r := roles[k.name]; {
		case r.what == "frontends":
			d.frontends = append(d.frontends, k)
		case r.what == "endpoints" && len(k.key) == r.width+4:
			of := elementKey(k.name, k.key[:r.width])
			if d.slots[of] == nil {
				d.slots[of] = make(map[uint32]netip.AddrPort)
			}
			d.slots[of][binary.NativeEndian.Uint32([]byte(k.key[r.width:]))] = d.ReadDestination(v.data)
		case r.what == "allowed" && len(k.key) == r.width+f.Addr().Len && len(k.end) == len(k.key):
			from, _ := netip.AddrFromSlice([]byte(k.key[r.width:]))
			to, _ := netip.AddrFromSlice([]byte(k.end[r.width:]))
			of := elementKey(k.name, k.key[:r.width])
			d.sources[of] = append(d.sources[of], span{from, to})
		case r.what == "":
			if t, is := timeoutOf(k.name); is {
				d.timeouts[numberIn(k.key)] = t
			}
		}
	}
	for _, spans := range d.sources {
		slices.SortFunc(spans, func(a, b span) int { return a.From.Compare(b.From) })
	}
	return d
}

// Parse returns the Services that the entries of a table serve, and the role that its base chains show.
func (f ip) Parse(entries map[entryKey]entryValue) (map[sdk.Name]wanted, sdk.Role) {
	return newDump(f, entries).services(), shown(func(chain string) bool {
		_, there := entries[entryKey{kind: ofChain, name: chain}]
		return there
	})
}

// shown is the role that base chains show.
func shown(has func(chain string) bool) sdk.Role {
	for _, c := range []struct {
		chain string
		role  sdk.Role
	}{{"nat-prerouting", sdk.Active}, {"nat-postrouting", sdk.Draining}} {
		if has(c.chain) {
			return c.role
		}
	}
	return sdk.Standby
}

func (d dump) services() map[sdk.Name]wanted {
	all, owners := make(map[sdk.Name]wanted), make(map[number]sdk.Name)
	for _, k := range d.frontends {
		p := index{ip: d.ip, ports: k.name == index{ip: d.ip, ports: true}.of("frontends")}
		name, f, ok := iptables.LabelledFrontend(d.entries[k].note)
		proto, addr, sound := d.ReadKey(k.key, !p.ports)
		if !ok || !sound {
			continue
		}
		name.Protocol, name.Family = proto, d.Family
		w := all[name]
		w.frontends = append(w.frontends, frontend{f.Kind, addr, f.Policy, d.sources[elementKey(p.of("allowed"), k.key)]})
		_, unserved := d.entries[elementKey(p.of("unserved"), k.key)]
		w.served = !unserved
		d.keep(&w, f.Policy, d.list(p, k.key))
		d.keep(&w, sdk.Cluster, d.list(near(p), k.key))
		n := numberIn(d.entries[elementKey(p.of(forList("keeps", f.Policy)), k.key)].data)
		if owner, taken := owners[n]; d.timeouts[n] > 0 && (!taken || owner == name) {
			w.number, w.affinity, owners[n] = n, d.timeouts[n], name
		}
		all[name] = w
	}
	for name, w := range all {
		for _, p := range w.policies() {
			for _, ep := range w.lists[p] {
				a := string(ep.Addr().AsSlice())
				if _, may := d.entries[elementKey("hairpin", a+a)]; may {
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

// list are the endpoints of a frontend's key in an index. What is behind a gap is none.
func (d dump) list(p index, key string) (list []netip.AddrPort) {
	slots := d.slots[elementKey(p.of("endpoints"), key)]
	for i := uint32(0); slots[i].IsValid(); i++ {
		list = append(list, slots[i])
	}
	return list
}
