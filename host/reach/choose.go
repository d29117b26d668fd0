// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// Lists are the endpoints of one Service port in one family that this node may
// use, in canonical order.
type Lists struct {
	Cluster []sdk.Endpoint
	Local   []sdk.Endpoint
	Serving []netip.Addr // UDP only: serving, and in neither list

	Ready int // endpoints that are ready, on any node
	Total int // endpoints that exist
}

// Choose joins slices and chooses from them the endpoints of one port in one
// family. Slices come in a fixed order, such as that of their names, so that of
// two equal candidates always the same one is taken.
func Choose(joined []*Slice, port Port, family sdk.Family, here Here) Lists {
	all := gather(joined, port, family, here.Node)
	near := topology(all, here)
	l := Lists{Total: len(all)}
	cluster := func(c candidate) bool { return c.state&Ready != 0 && near.name(c) }
	local := func(c candidate) bool { return c.state&Ready != 0 && c.local }
	for _, c := range all {
		if c.state&Ready != 0 {
			l.Ready++
		}
	}
	l.Cluster = pick(all, cluster, terminating)
	l.Local = pick(all, local, func(c candidate) bool { return terminating(c) && c.local })
	if port.Protocol == sdk.UDP {
		l.Serving = serving(all, l)
	}
	return l
}

// Counts are numbers of endpoints in each family.
type Counts struct{ IPv4, IPv6 int }

// Of returns the one of a family.
func (c Counts) Of(f sdk.Family) int {
	if f == sdk.IPv6 {
		return c.IPv6
	}
	return c.IPv4
}

// Add adds one in a family.
func (c *Counts) Add(f sdk.Family) {
	if f == sdk.IPv6 {
		c.IPv6++
		return
	}
	c.IPv4++
}

// LocalReady counts the addresses on this node that are ready: what a load balancer's
// health check asks for. A slice without a port has no address that it could call.
func LocalReady(joined []*Slice, here Here) (n Counts) {
	var addrs []netip.Addr
	for _, s := range joined {
		if len(s.Ports) == 0 {
			continue
		}
		for _, ep := range s.Endpoints {
			if ep.State&Ready != 0 && here.Node != "" && ep.Place.Value().Node == here.Node {
				addrs = append(addrs, ep.Addr)
			}
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, addr := range slices.Compact(addrs) {
		n.Add(sdk.FamilyOf(addr))
	}
	return n
}

// A candidate is an endpoint with a port, seen from here.
type candidate struct {
	addr   netip.AddrPort
	place  Place
	state  State
	local  bool // its node is ours
	onNode bool // its node is ours, or not given
}

// gather lists every address and port once. Of duplicates the one that does not
// terminate wins, for a pod may have its address from another that ends elsewhere; then
// the local one, then the one more ready to serve.
func gather(joined []*Slice, port Port, family sdk.Family, node string) []candidate {
	var all []candidate
	for _, s := range joined {
		if s.Family != family {
			continue
		}
		for _, p := range s.Ports {
			if p.Name != port.Name || p.Protocol != port.Protocol {
				continue
			}
			all = slices.Grow(all, len(s.Endpoints))
			for _, ep := range s.Endpoints {
				all = append(all, see(ep, p.Number, node))
			}
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(b.worth(), a.worth()))
	})
	return slices.CompactFunc(all, func(a, b candidate) bool { return a.addr == b.addr })
}

func see(ep Endpoint, port uint16, node string) candidate {
	place := ep.Place.Value()
	return candidate{
		addr:   netip.AddrPortFrom(ep.Addr, port),
		place:  place,
		state:  ep.State,
		local:  place.Node != "" && place.Node == node,
		onNode: place.Node == "" || place.Node == node,
	}
}

func (c candidate) worth() int {
	worth := 0
	if c.state&Terminating == 0 {
		worth += 8
	}
	if c.local {
		worth += 4
	}
	if c.state&Ready != 0 {
		worth += 2
	}
	if c.state&Serving != 0 {
		worth++
	}
	return worth
}

// terminating reports whether c may serve while none is ready: it still serves while it
// terminates.
func terminating(c candidate) bool { return c.state&(Serving|Terminating) == Serving|Terminating }

// pick takes the first choice or, when that is empty, the second.
func pick(all []candidate, first, second func(candidate) bool) []sdk.Endpoint {
	if list := filter(all, first); list != nil {
		return list
	}
	return filter(all, second)
}

// filter allocates the list once: it is kept for as long as it is served.
func filter(all []candidate, keep func(candidate) bool) []sdk.Endpoint {
	n := 0
	for _, c := range all {
		if keep(c) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	list := make([]sdk.Endpoint, 0, n)
	for _, c := range all {
		if keep(c) {
			list = append(list, sdk.Endpoint{Addr: c.addr, OnNode: c.onNode})
		}
	}
	return list
}

// serving returns the addresses whose flows must not be forgotten although nothing
// new is sent there. An address that has another port in a list may be one.
func serving(all []candidate, l Lists) []netip.Addr {
	var addrs []netip.Addr
	for _, c := range all {
		if c.state&Serving != 0 && !lists(l.Cluster, c.addr) && !lists(l.Local, c.addr) {
			addrs = append(addrs, c.addr.Addr())
		}
	}
	return slices.Compact(addrs) // all is sorted
}

// lists reports whether a sorted list has addr.
func lists(list []sdk.Endpoint, addr netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(list, addr, func(ep sdk.Endpoint, a netip.AddrPort) int { return ep.Addr.Compare(a) })
	return found
}

// topology says which ready endpoints are near, by the slices' hints: those for
// our node, if every ready endpoint has node hints and one names us; else those
// for our zone, likewise; else all. One endpoint without a hint switches hints
// off, for then their writer has not seen it yet.
func topology(all []candidate, here Here) hints {
	nodes := hints{"node", here.Node, func(p Place) string { return p.NodeHints }}
	zones := hints{"zone", here.Zone, func(p Place) string { return p.ZoneHints }}
	for _, h := range []hints{nodes, zones} {
		if h.hold(all) {
			return h
		}
	}
	return hints{}
}

// hints are those of one kind, for nodes or zones. The zero value names every endpoint.
type hints struct {
	kind string
	me   string
	of   func(Place) string
}

// hold reports whether no ready endpoint lacks them, and one is hinted for us.
func (h hints) hold(all []candidate) (mine bool) {
	for _, c := range all {
		if c.state&Ready == 0 {
			continue
		}
		if h.me == "" || h.of(c.place) == "" {
			return false
		}
		mine = mine || h.name(c)
	}
	return mine
}

// name reports whether c is hinted for us.
func (h hints) name(c candidate) bool {
	if h.of == nil {
		return true
	}
	rest := h.of(c.place)
	for rest != "" {
		var one string
		if one, rest, _ = strings.Cut(rest, ","); one == h.me {
			return true
		}
	}
	return false
}
