// SPDX-License-Identifier: Apache-2.0

package track

import (
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/sdk"
)

// A podRanges tells whether the Node's podCIDRs hold the pods of this node. Calico's and
// Cilium's own address management may give pods other addresses, with podCIDRs filled in.
type podRanges struct {
	node  string
	all   []netip.Prefix // of the pods of all nodes
	own   []netip.Prefix // the Node's podCIDRs, as far as they are a part of one in all
	addrs []netip.Addr   // the node's own: pods in its network have them
}

func (p podRanges) equal(q podRanges) bool {
	return p.node == q.node && slices.Equal(p.all, q.all) && slices.Equal(p.own, q.own) && slices.Equal(p.addrs, q.addrs)
}

// podRanges returns those of a node of which r and n are known.
func (f Facts) podRanges(r nodeRecord, n sdk.Node) podRanges {
	p := podRanges{node: f.NodeName, all: n.Pods.CIDRs, addrs: n.Addrs}
	for _, own := range r.pods {
		if slices.ContainsFunc(p.all, func(all netip.Prefix) bool { return all.Bits() < own.Bits() && all.Contains(own.Addr()) }) {
			p.own = append(p.own, own)
		}
	}
	return p
}

// strays counts the endpoints of s that are pods of this node and lie outside its podCIDRs.
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

// podCIDRs returns the ranges that no endpoint contradicts.
func (t *Tracker) podCIDRs() (all []netip.Prefix) {
	for _, own := range t.pods.own {
		if t.strays[sdk.FamilyOf(own.Addr())] == 0 {
			all = append(all, own)
		}
	}
	return all
}

// setPods makes p the ranges of pods, and counts again what lies outside them.
func (t *Tracker) setPods(p podRanges) {
	if p.equal(t.pods) {
		return
	}
	t.pods = p
	clear(t.strays)
	for _, s := range t.slices {
		s.strays = p.strays(&s.record)
		t.strays[s.record.Family] += s.strays
	}
}

// recount follows a change of s, whose strays were of a family. Only the first stray and the end of the
// last one change what dataplanes are to know of the node.
func (t *Tracker) recount(s *slice, before sdk.Family) {
	t.strays[before] -= s.strays
	s.strays = t.pods.strays(&s.record)
	t.strays[s.record.Family] += s.strays
	if !slices.Equal(t.podCIDRs(), t.node.PodCIDRs) {
		t.renode()
	}
}
