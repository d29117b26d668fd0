// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// Frontend returns the frontend that an element catches.
func (f ip) Frontend(k entryKey) (protocol sdk.Protocol, at netip.AddrPort, ok bool) {
	for _, p := range []index{{ip: f}, {ip: f, ports: true}} {
		if k.kind == ofElement && k.name == p.of("frontends") {
			return f.ReadKey(k.key, !p.ports)
		}
	}
	return 0, at, false
}

// at is the index in which a frontend is, for callers from elsewhere.
func at(of sdk.Family, f frontend) index {
	return index{ip: ipOf(of), ports: f.addr.Addr().IsUnspecified()}
}

// outside are the sets of external frontends.
var outside = map[sdk.Policy]string{sdk.Cluster: "outside", sdk.Local: "outside-local"}

// Entries calls put with each element that w needs, for the Service called name.
func (f ip) Entries(name sdk.Name, w wanted, put func(entryKey, entryValue)) {
	w.elements(name, func(set string, e nftnl.Element) {
		put(entryKey{ofElement, set, e.Key, e.KeyEnd}, entryValue{e.Data, e.Comment})
	})
}

// elements calls add with each element that w needs, and the set that it is of.
func (w wanted) elements(name sdk.Name, add func(string, nftnl.Element)) {
	for _, f := range w.frontends {
		p, k := at(name.Family, f), frontendKey(name.Protocol, f.addr)
		add(p.of("frontends"), nftnl.Element{Key: k, Comment: iptables.LabelFrontend(name, f.kind, f.policy)})
		for _, s := range f.sources {
			add(p.of("allowed"), nftnl.Element{Key: k + addrKey(s.From), KeyEnd: k + addrKey(s.To)})
		}
		if len(f.sources) > 0 {
			add(p.of("gated"), nftnl.Element{Key: k})
		}
		if f.kind == sdk.ClusterIP {
			add("vips", nftnl.Element{Key: addrKey(f.addr.Addr())})
		}
		if f.kind == sdk.ExternalIP || f.kind == sdk.LoadBalancer {
			add("external", nftnl.Element{Key: addrKey(f.addr.Addr())})
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
			near := near(p)
			add(near.of("frontends"), nftnl.Element{Key: k})
			w.choice(near, k, sdk.Cluster, add)
		}
	}
	for _, a := range w.hairpin {
		add("hairpin", nftnl.Element{Key: addrKey(a) + addrKey(a)})
	}
	if w.number > 0 {
		w.affine(add)
	}
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
	endpoints := p.of("endpoints")
	for i, ep := range list {
		add(endpoints, nftnl.Element{Key: slotKey(k, i), Data: destination(ep)})
	}
}

// policies are the lists that w has, in order.
func (w wanted) policies() []sdk.Policy {
	return slices.DeleteFunc(slices.Clone(both), func(p sdk.Policy) bool { return len(w.lists[p]) == 0 })
}
