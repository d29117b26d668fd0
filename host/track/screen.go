// SPDX-License-Identifier: Apache-2.0

package track

import (
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/sdk"
)

// A screen finds the EndpointSlices that have an address. Cluster IPs are taken from few ranges, in
// which pods are not: only addresses of a block that has had a cluster IP are kept.
type screen struct {
	blocks map[netip.Prefix]bool
	slices map[netip.Addr]map[Key]bool
}

// blockOf returns the block of an address. However many cluster IPs there are, they are in few.
func blockOf(addr netip.Addr) netip.Prefix {
	block, _ := addr.Prefix(addr.BitLen() / 2)
	return block
}

func (s *screen) add(key Key, slice *reach.Slice) {
	for _, ep := range slice.Endpoints {
		if !s.blocks[blockOf(ep.Addr)] {
			continue
		}
		if s.slices[ep.Addr] == nil {
			s.slices[ep.Addr] = make(map[Key]bool)
		}
		s.slices[ep.Addr][key] = true
	}
}

func (s *screen) remove(key Key, slice *reach.Slice) {
	for _, ep := range slice.Endpoints {
		if keys := s.slices[ep.Addr]; keys != nil {
			if delete(keys, key); len(keys) == 0 {
				delete(s.slices, ep.Addr)
			}
		}
	}
}

// said returns what the EndpointSlice says, also of endpoints that are cluster IPs.
func (s *slice) said() *reach.Slice {
	if s.whole != nil {
		return s.whole
	}
	return &s.record
}

// use makes what an EndpointSlice says the record of s, save for endpoints that are cluster IPs.
func (t *Tracker) use(key Key, s *slice, said reach.Slice) {
	before := s.record.Problems
	s.record, s.whole = said.WithoutClusterIPs(t.clusterIPOf), nil
	if len(s.record.Endpoints) < len(said.Endpoints) {
		s.whole = &said
	}
	t.warnNew("EndpointSlice "+key.String(), before, s.record.Problems)
}

// clusterIPOf names the Service that addr is the cluster IP of; empty: it is none's. An address that this node
// has leads to a socket of the node, as that of the canary and those of one machine without a cluster do.
func (t *Tracker) clusterIPOf(addr netip.Addr) string {
	if addr.IsLoopback() || slices.Contains(t.here.Addrs, addr) {
		return ""
	}
	if s := t.owners.addresses[addr]; s != nil && len(s.cluster) > 0 {
		return s.cluster[0].key.String()
	}
	return ""
}

// rescreen follows a Service that had the ports before and has those after. It returns the Services
// one of whose endpoints became a cluster IP by that, or is none any more.
func (t *Tracker) rescreen(before, after []port) (touched []*service) {
	had, has := clusterIPs(before), clusterIPs(after)
	for _, addr := range slices.Concat(had, has) {
		if slices.Contains(had, addr) && slices.Contains(has, addr) {
			continue
		}
		if block := blockOf(addr); !t.screen.blocks[block] {
			t.screen.blocks[block] = true
			for key, s := range t.slices {
				t.screen.add(key, s.said())
			}
		}
		for key := range t.screen.slices[addr] {
			s := t.slices[key]
			t.use(key, s, *s.said())
			t.recount(s, s.record.Family)
			if s.service != nil {
				touched = append(touched, s.service)
			}
		}
	}
	return touched
}

// clusterIPs returns those of a Service with these ports, each once.
func clusterIPs(ports []port) (all []netip.Addr) {
	for _, p := range ports {
		for _, f := range p.Frontends {
			if f.Kind == sdk.ClusterIP && !slices.Contains(all, f.Addr.Addr()) {
				all = append(all, f.Addr.Addr())
			}
		}
	}
	return all
}
