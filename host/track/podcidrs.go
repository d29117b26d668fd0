// SPDX-License-Identifier: Apache-2.0

package track

import (
	"net/netip"
	"reflect"
	"slices"

	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/sdk"
)

// A podRanges is used to check whether the Node's podCIDRs really contain the pods of this
// node. The IPAM of Calico and of Cilium may assign other addresses although podCIDRs is set.
type podRanges struct {
	node  string
	all   []netip.Prefix // of the pods on all nodes
	own   []netip.Prefix // the Node's podCIDRs that are a proper part of a range in all
	addrs []netip.Addr   // of the node itself: pods with hostNetwork have them
}

// podRanges returns the ranges for this node, from its Node object r and the resulting n.
func (f Facts) podRanges(r nodeRecord, n sdk.Node) podRanges {
	p := podRanges{node: f.NodeName, all: n.Pods.CIDRs, addrs: n.Addrs}
	for _, own := range r.pods {
		if slices.ContainsFunc(p.all, func(all netip.Prefix) bool { return all.Bits() < own.Bits() && all.Contains(own.Addr()) }) {
			p.own = append(p.own, own)
		}
	}
	return p
}

// contradictedBy reports whether an endpoint of s is a pod of this node but outside its podCIDRs.
func (p podRanges) contradictedBy(s *reach.Slice) bool {
	holds := func(ranges []netip.Prefix, addr netip.Addr) bool {
		return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(addr) })
	}
	return len(p.own) > 0 && p.node != "" && slices.ContainsFunc(s.Endpoints, func(ep reach.Endpoint) bool {
		return ep.Place.Value().Node == p.node && holds(p.all, ep.Addr) && !holds(p.own, ep.Addr) && !slices.Contains(p.addrs, ep.Addr)
	})
}

// podCIDRs returns the podCIDRs of the families in which no endpoint has contradicted them.
func (t *Tracker) podCIDRs() (all []netip.Prefix) {
	for _, own := range t.pods.own {
		if !t.strayed[sdk.FamilyOf(own.Addr())] {
			all = append(all, own)
		}
	}
	return all
}

// setPods sets the ranges and compares all slices with them.
func (t *Tracker) setPods(p podRanges) {
	if reflect.DeepEqual(p, t.pods) {
		return
	}
	t.pods = p
	clear(t.strayed)
	for _, s := range t.slices {
		t.noteStrays(&s.record)
	}
}

// noteStrays compares s with the ranges, and reports whether it is the first slice of its family
// that contradicts them. That stays in force until the ranges change.
func (t *Tracker) noteStrays(s *reach.Slice) (first bool) {
	first = !t.strayed[s.Family] && t.pods.contradictedBy(s)
	t.strayed[s.Family] = t.strayed[s.Family] || first
	return first
}
