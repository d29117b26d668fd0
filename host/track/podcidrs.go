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

// strays returns the number of endpoints in s that are pods of this node but lie outside its
// podCIDRs.
func (p podRanges) strays(s *reach.Slice) (n int) {
	if len(p.own) == 0 {
		return 0
	}
	holds := func(ranges []netip.Prefix, addr netip.Addr) bool {
		return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(addr) })
	}
	for _, ep := range s.Endpoints {
		if p.node != "" && ep.Place.Value().Node == p.node && holds(p.all, ep.Addr) && !holds(p.own, ep.Addr) && !slices.Contains(p.addrs, ep.Addr) {
			n++
		}
	}
	return n
}

// podCIDRs returns the podCIDRs of the families without strays.
func (t *Tracker) podCIDRs() (all []netip.Prefix) {
	for _, own := range t.pods.own {
		if t.strays[sdk.FamilyOf(own.Addr())] == 0 {
			all = append(all, own)
		}
	}
	return all
}

// setPods sets the ranges and recounts the strays of all slices.
func (t *Tracker) setPods(p podRanges) {
	if reflect.DeepEqual(p, t.pods) {
		return
	}
	t.pods = p
	clear(t.strays)
	for _, s := range t.slices {
		s.strays = p.strays(&s.record)
		t.strays[s.record.Family] += s.strays
	}
}

// updateStrays recounts the strays of s after a change; before is the family of its previous
// record. Dataplanes learn of it only when the first stray appears or the last one disappears.
func (t *Tracker) updateStrays(s *slice, before sdk.Family) {
	t.strays[before] -= s.strays
	s.strays = t.pods.strays(&s.record)
	t.strays[s.record.Family] += s.strays
	if !slices.Equal(t.podCIDRs(), t.node.PodCIDRs) {
		t.refreshNode()
	}
}
