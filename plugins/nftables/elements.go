// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// An element is one of a set of the layout.
type element struct {
	set string
	nftnl.Element
}

// A place is where an element is: no two are in one.
type place struct{ set, key, end string }

func (e element) place() place { return place{e.set, e.Key, e.KeyEnd} }

// shared reports whether several Services may have the element.
func (e element) shared() bool { return e.set == "vips" || e.set == "hairpin" }

// numbers are the protocols', as IP has them.
var numbers = map[sdk.Protocol]string{sdk.TCP: "\x06", sdk.UDP: "\x11", sdk.SCTP: "\x84"}

// key is what packets to an address, or with an unspecified one to a node port, are looked up by.
func key(proto sdk.Protocol, addr netip.AddrPort) string {
	k := numbers[proto] + "\x00\x00\x00" + portKey(addr.Port())
	if addr.Addr().IsUnspecified() {
		return k
	}
	return string(addr.Addr().AsSlice()) + k
}

func portKey(port uint16) string {
	return string(binary.BigEndian.AppendUint16(nil, port)) + "\x00\x00"
}

// destination is an address and a port as data.
func destination(ep netip.AddrPort) string { return string(ep.Addr().AsSlice()) + portKey(ep.Port()) }

// at is the index in which a frontend is, for callers from elsewhere.
func at(of sdk.Family, f frontend) index {
	return index{ip: ip{of}, ports: f.addr.Addr().IsUnspecified()}
}

// outside are the sets of external frontends.
var outside = map[sdk.Policy]string{sdk.Cluster: "outside", sdk.Local: "outside-local"}

// elements are all that w needs, for the Service called name.
func (w wanted) elements(name sdk.Name) []element {
	all := make([]element, 0, w.size())
	add := func(set string, e nftnl.Element) { all = append(all, element{set, e}) }
	for _, f := range w.frontends {
		p, k := at(name.Family, f), key(name.Protocol, f.addr)
		add(p.of("frontends"), nftnl.Element{Key: k, Comment: label(name, f.kind, f.policy)})
		for _, s := range f.sources {
			add(p.of("allowed"), nftnl.Element{Key: k + string(s.from.AsSlice()), KeyEnd: k + string(s.to.AsSlice())})
		}
		if len(f.sources) > 0 {
			add(p.of("gated"), nftnl.Element{Key: k})
		}
		if f.kind == sdk.ClusterIP {
			add("vips", nftnl.Element{Key: string(f.addr.Addr().AsSlice())})
		}
		w.choice(p, k, f.policy, add)
		if !w.served {
			add(p.of("unserved"), nftnl.Element{Key: k})
			continue
		}
		if f.external() {
			add(p.of(outside[f.policy]), nftnl.Element{Key: k})
		}
		if f.external() && f.policy == sdk.Local {
			near := p
			near.near = true
			add(near.of("frontends"), nftnl.Element{Key: k})
			w.choice(near, k, sdk.Cluster, add)
		}
	}
	for _, a := range w.hairpin {
		add("hairpin", nftnl.Element{Key: string(a.AsSlice()) + string(a.AsSlice())})
	}
	if w.number > 0 {
		w.affine(add)
	}
	return all
}

// size is about how many elements there are.
func (w wanted) size() int {
	n := len(w.hairpin)
	for _, list := range w.lists {
		n += len(list)
	}
	return len(w.frontends) * (n + 6)
}

// choice adds what leads from a key to the endpoints of a list.
func (w wanted) choice(p index, k string, policy sdk.Policy, add func(string, nftnl.Element)) {
	if w.number > 0 {
		add(p.of(forList("keeps", policy)), nftnl.Element{Key: k, Data: w.number.key()})
	}
	list := w.lists[policy]
	if len(list) == 0 {
		return
	}
	add(p.of(ofClass(class(len(list)))), nftnl.Element{Key: k})
	for i, ep := range list {
		add(p.of("endpoints"), nftnl.Element{Key: k + mark(uint32(i)), Data: destination(ep)})
	}
}

// policies are the lists that w has, in order.
func (w wanted) policies() []sdk.Policy {
	return slices.DeleteFunc(slices.Clone(both), func(p sdk.Policy) bool { return len(w.lists[p]) == 0 })
}
