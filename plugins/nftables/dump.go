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

// This file is the inverse of elements.go: it returns the Services that the elements of a table serve.

// A dump has the elements of a table, grouped by their meaning.
type dump struct {
	ip
	entries   map[entryKey]entryValue
	slots     map[entryKey]map[uint32]netip.AddrPort // endpoints by slot, by set of endpoints and frontend key
	sources   map[entryKey][]span                    // source ranges, by set of ranges and frontend key
	timeouts  map[number]time.Duration
	frontends []entryKey
}

// newDump groups entries. It ignores elements whose key has an unexpected length.
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
		roles[p.name("endpoints")], roles[p.name("allowed")] = role{"endpoints", width}, role{"allowed", width}
		if !p.near {
			roles[p.name("frontends")] = role{"frontends", width}
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
			if t, is := parseTimeoutSet(k.name); is {
				d.timeouts[parseNumber(k.key)] = t
			}
		}
	}
	for _, spans := range d.sources {
		slices.SortFunc(spans, func(a, b span) int { return a.From.Compare(b.From) })
	}
	return d
}

// Parse returns the Services that the entries of a table serve, and the role that its base chains show.
func (f ip) Parse(entries map[entryKey]entryValue) (map[sdk.Name]piece, sdk.Role) {
	return newDump(f, entries).services(), shownRole(func(chain string) bool {
		_, there := entries[entryKey{kind: ofChain, name: chain}]
		return there
	})
}

// shownRole returns the role that base chains show.
func shownRole(has func(chain string) bool) sdk.Role {
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

func (d dump) services() map[sdk.Name]piece {
	all, owners := make(map[sdk.Name]piece), make(map[number]sdk.Name)
	for _, k := range d.frontends {
		p := index{ip: d.ip, ports: k.name == index{ip: d.ip, ports: true}.name("frontends")}
		name, f, ok := iptables.LabelledFrontend(d.entries[k].note)
		proto, addr, sound := d.ReadKey(k.key, !p.ports)
		if !ok || !sound {
			continue
		}
		name.Protocol, name.Family = proto, d.Family
		w := all[name]
		w.frontends = append(w.frontends, frontend{f.Kind, addr, f.Policy, d.sources[elementKey(p.name("allowed"), k.key)]})
		_, unserved := d.entries[elementKey(p.name("unserved"), k.key)]
		w.served = !unserved
		d.setList(&w, f.Policy, d.list(p, k.key))
		d.setList(&w, sdk.Cluster, d.list(nearIndex(p), k.key))
		n := parseNumber(d.entries[elementKey(p.name(forPolicy("keeps", f.Policy)), k.key)].data)
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

// setList sets the list for a policy, unless w has one.
func (d dump) setList(w *piece, p sdk.Policy, list []netip.AddrPort) {
	if len(list) > 0 && len(w.lists[p]) == 0 {
		w.lists[p] = list
	}
}

// nearIndex returns the index of the same frontends for pods of the node and the node itself.
func nearIndex(p index) index {
	p.near = true
	return p
}

// list returns the endpoints of a frontend's key in an index, up to the first empty slot.
func (d dump) list(p index, key string) (list []netip.AddrPort) {
	slots := d.slots[elementKey(p.name("endpoints"), key)]
	for i := uint32(0); slots[i].IsValid(); i++ {
		list = append(list, slots[i])
	}
	return list
}
