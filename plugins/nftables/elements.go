// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// Frontend returns the frontend that an element matches.
func (f ip) Frontend(k entryKey) (protocol sdk.Protocol, at netip.AddrPort, ok bool) {
	for _, p := range []index{{ip: f}, {ip: f, ports: true}} {
		if k.kind == ofElement && k.name == p.name("frontends") {
			return f.ReadKey(k.key, !p.ports)
		}
	}
	return 0, at, false
}

// indexOf returns the index that has a frontend, for clients outside the node.
func indexOf(of sdk.Family, f frontend) index {
	return index{ip: ipOf(of), ports: f.addr.Addr().IsUnspecified()}
}

// outsideSets has the names of the sets of external frontends, by policy.
var outsideSets = map[sdk.Policy]string{sdk.Cluster: "outside", sdk.Local: "outside-local"}

// Entries calls put with each element that the Service called name needs.
func (f ip) Entries(name sdk.Name, w piece, put func(entryKey, entryValue)) {
	w.elements(name, func(set string, e nftnl.Element) {
		put(entryKey{ofElement, set, e.Key, e.KeyEnd}, entryValue{e.Data, e.Comment})
	})
}

// elements calls add with each element that w needs, and the name of its set.
func (w piece) elements(name sdk.Name, add func(string, nftnl.Element)) {
	for _, f := range w.frontends {
		p, k := indexOf(name.Family, f), frontendKey(name.Protocol, f.addr)
		add(p.name("frontends"), nftnl.Element{Key: k, Comment: iptables.LabelFrontend(name, f.kind, f.policy)})
		for _, s := range f.sources {
			add(p.name("allowed"), nftnl.Element{Key: k + addrKey(s.From), KeyEnd: k + addrKey(s.To)})
		}
		if len(f.sources) > 0 {
			add(p.name("gated"), nftnl.Element{Key: k})
		}
		if f.kind == sdk.ClusterIP {
			add("vips", nftnl.Element{Key: addrKey(f.addr.Addr())})
		}
		if f.kind == sdk.ExternalIP || f.kind == sdk.LoadBalancer {
			add("external", nftnl.Element{Key: addrKey(f.addr.Addr())})
		}
		w.addEndpoints(p, k, f.policy, add)
		if !w.served {
			add(p.name("unserved"), nftnl.Element{Key: k})
			continue
		}
		if f.isExternal() {
			add(p.name(outsideSets[f.policy]), nftnl.Element{Key: k})
		}
		if f.isExternal() && f.policy == sdk.Local {
			near := nearIndex(p)
			add(near.name("frontends"), nftnl.Element{Key: k})
			w.addEndpoints(near, k, sdk.Cluster, add)
		}
	}
	for _, a := range w.hairpin {
		add("hairpin", nftnl.Element{Key: addrKey(a) + addrKey(a)})
	}
	if w.number > 0 {
		w.affinityElements(add)
	}
}

// addEndpoints adds the elements that lead from a frontend's key to the endpoints of a list.
func (w piece) addEndpoints(p index, k string, policy sdk.Policy, add func(string, nftnl.Element)) {
	if w.number > 0 {
		add(p.name(forPolicy("keeps", policy)), nftnl.Element{Key: k, Data: w.number.key()})
	}
	list := w.lists[policy]
	if len(list) == 0 {
		return
	}
	add(p.name(classSet(classOf(len(list)))), nftnl.Element{Key: k})
	endpoints := p.name("endpoints")
	for i, ep := range list {
		add(endpoints, nftnl.Element{Key: slotKey(k, i), Data: destination(ep)})
	}
}

// policies returns the policies for which w has endpoints, in order.
func (w piece) policies() []sdk.Policy {
	return slices.DeleteFunc(slices.Clone(both), func(p sdk.Policy) bool { return len(w.lists[p]) == 0 })
}
