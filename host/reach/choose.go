// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// Lists are the endpoints of one Service port in one family that this node may use, in
// canonical order.
type Lists struct {
	Cluster []sdk.Endpoint
	Local   []sdk.Endpoint
	Serving []netip.Addr // UDP only: addresses that still serve but are in neither list

	Ready int // ready endpoints, on any node
	Total int // all endpoints
}

// Choose merges the EndpointSlices of a Service and chooses the endpoints of one port in one
// family. The caller must pass the slices in a fixed order, such as by name, so that Choose
// always takes the same one of two equal candidates.
func Choose(joined []*Slice, port Port, family sdk.Family, thisNode ThisNode) Lists {
	all := collectCandidates(joined, port, family, thisNode.Node)
	near := chooseHints(all, thisNode)
	l := Lists{Total: len(all)}
	cluster := func(c candidate) bool { return c.state&Ready != 0 && near.match(c) }
	local := func(c candidate) bool { return c.state&Ready != 0 && c.local }
	for _, c := range all {
		if c.state&Ready != 0 {
			l.Ready++
		}
	}
	l.Cluster = filterOr(all, cluster, isServingTerminating)
	l.Local = filterOr(all, local, func(c candidate) bool { return isServingTerminating(c) && c.local })
	if port.Protocol == sdk.UDP {
		l.Serving = servingOnly(all, l)
	}
	return l
}

// Counts are numbers per IP family.
type Counts struct{ IPv4, IPv6 int }

// Of returns the number for a family.
func (c Counts) Of(f sdk.Family) int {
	if f == sdk.IPv6 {
		return c.IPv6
	}
	return c.IPv4
}

// Add increments the number for a family.
func (c *Counts) Add(f sdk.Family) {
	if f == sdk.IPv6 {
		c.IPv6++
		return
	}
	c.IPv4++
}

// LocalReady counts the ready addresses on this node, for the health checks of load balancers.
// It ignores slices without ports, because nothing could connect to their endpoints.
func LocalReady(joined []*Slice, thisNode ThisNode) (n Counts) {
	var addrs []netip.Addr
	for _, s := range joined {
		if len(s.Ports) == 0 {
			continue
		}
		for _, ep := range s.Endpoints {
			if ep.State&Ready != 0 && thisNode.Node != "" && ep.Place.Value().Node == thisNode.Node {
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

// A candidate is an endpoint and port, with its location relative to this node.
type candidate struct {
	addr   netip.AddrPort
	place  Place
	state  State
	local  bool // it is on this node
	onNode bool // it is on this node, or its node is not known
}

// collectCandidates returns every address and port once. Among duplicates, an endpoint that is not
// terminating wins, because a new pod may reuse the address of a terminating one; then a local
// endpoint, then a ready one, then a serving one.
func collectCandidates(joined []*Slice, port Port, family sdk.Family, node string) []candidate {
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
				place := ep.Place.Value()
				all = append(all, candidate{
					addr:   netip.AddrPortFrom(ep.Addr, p.Number),
					place:  place,
					state:  ep.State,
					local:  place.Node != "" && place.Node == node,
					onNode: place.Node == "" || place.Node == node,
				})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(b.rank(), a.rank()))
	})
	return slices.CompactFunc(all, func(a, b candidate) bool { return a.addr == b.addr })
}

func (c candidate) rank() (rank int) {
	for i, is := range [...]bool{c.state&Serving != 0, c.state&Ready != 0, c.local, c.state&Terminating == 0} {
		if is {
			rank |= 1 << i
		}
	}
	return rank
}

// isServingTerminating reports whether c terminates but still serves. Such endpoints are used
// while no endpoint is ready (KEP-1669).
func isServingTerminating(c candidate) bool {
	return c.state&(Serving|Terminating) == Serving|Terminating
}

// filterOr returns the candidates that match first or, if there are none, those that match second.
func filterOr(all []candidate, first, second func(candidate) bool) []sdk.Endpoint {
	if list := filterEndpoints(all, first); list != nil {
		return list
	}
	return filterEndpoints(all, second)
}

// filterEndpoints counts before it allocates, because the list is kept for as long as it is served.
func filterEndpoints(all []candidate, keep func(candidate) bool) []sdk.Endpoint {
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

// servingOnly returns the addresses of candidates that serve but are in no list. They get no new
// flows, but the dataplane must keep their existing conntrack entries. An address may be among
// them although another port of it is in a list.
func servingOnly(all []candidate, l Lists) []netip.Addr {
	var addrs []netip.Addr
	for _, c := range all {
		if c.state&Serving != 0 && !contains(l.Cluster, c.addr) && !contains(l.Local, c.addr) {
			addrs = append(addrs, c.addr.Addr())
		}
	}
	return slices.Compact(addrs) // all is sorted
}

// contains reports whether a sorted list contains addr.
func contains(list []sdk.Endpoint, addr netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(list, addr, func(ep sdk.Endpoint, a netip.AddrPort) int { return ep.Addr.Compare(a) })
	return found
}

// chooseHints returns the hints to apply (KEP-2433, KEP-3015): node hints, if every ready
// endpoint has one and at least one endpoint is hinted for this node; else zone hints under the
// same condition; else none. A single ready endpoint without hints disables them, because then
// the EndpointSlice controller has not processed it yet.
func chooseHints(all []candidate, thisNode ThisNode) hints {
	nodes := hints{"node", thisNode.Node, func(p Place) string { return p.NodeHints }}
	zones := hints{"zone", thisNode.Zone, func(p Place) string { return p.ZoneHints }}
	for _, h := range []hints{nodes, zones} {
		if h.canApply(all) {
			return h
		}
	}
	return hints{}
}

// hints are the hints of one kind. The zero value matches every endpoint.
type hints struct {
	kind string             // "node" or "zone"
	self string             // the name of this node or of its zone
	of   func(Place) string // returns an endpoint's hints of this kind
}

// canApply reports whether every ready endpoint has hints of this kind and at least one is
// hinted for this node.
func (h hints) canApply(all []candidate) (some bool) {
	for _, c := range all {
		if c.state&Ready == 0 {
			continue
		}
		if h.self == "" || h.of(c.place) == "" {
			return false
		}
		some = some || h.match(c)
	}
	return some
}

// match reports whether c is hinted for this node.
func (h hints) match(c candidate) bool {
	if h.of == nil {
		return true
	}
	rest := h.of(c.place)
	for rest != "" {
		var one string
		if one, rest, _ = strings.Cut(rest, ","); one == h.self {
			return true
		}
	}
	return false
}
