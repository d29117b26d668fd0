// SPDX-License-Identifier: Apache-2.0

package track

import (
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/sdk"
)

// An endpointIndex maps addresses to the EndpointSlices that list them, to find endpoints that
// are cluster IPs. To save memory it indexes only addresses in a block that has ever contained
// a cluster IP: cluster IPs come from few ranges, and pods are not in them.
type endpointIndex struct {
	blocks map[netip.Prefix]bool
	slices map[netip.Addr]map[Key]bool
}

// blockOf returns the block of an address: its first half (/16 or /64). Cluster IPs come from
// few blocks, however many there are.
func blockOf(addr netip.Addr) netip.Prefix {
	block, _ := addr.Prefix(addr.BitLen() / 2)
	return block
}

func (s *endpointIndex) add(key Key, slice *reach.Slice) {
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

func (s *endpointIndex) remove(key Key, slice *reach.Slice) {
	for _, ep := range slice.Endpoints {
		if keys := s.slices[ep.Addr]; keys != nil {
			if delete(keys, key); len(keys) == 0 {
				delete(s.slices, ep.Addr)
			}
		}
	}
}

// full returns the record of the EndpointSlice with all its endpoints, including those that are
// cluster IPs.
func (s *slice) full() *reach.Slice {
	if s.whole != nil {
		return s.whole
	}
	return &s.record
}

// setRecord sets the record of s to full without the endpoints that are cluster IPs.
func (t *Tracker) setRecord(key Key, s *slice, full reach.Slice) {
	before := s.record.Problems
	s.record, s.whole = full.WithoutClusterIPs(t.clusterIPOf), nil
	if len(s.record.Endpoints) < len(full.Endpoints) {
		s.whole = &full
	}
	t.warnNew("EndpointSlice "+key.String(), before, s.record.Problems)
}

// clusterIPOf returns the name of the Service that has addr as its cluster IP, or "". It
// returns "" also for addresses of this node: they lead to a socket on the node, as those of
// the canary and of a machine without a cluster do.
func (t *Tracker) clusterIPOf(addr netip.Addr) string {
	if addr.IsLoopback() || slices.Contains(t.thisNode.Addrs, addr) {
		return ""
	}
	if s := t.owners.addresses[addr]; s != nil && len(s.cluster) > 0 {
		return s.cluster[0].key.String()
	}
	return ""
}

// updateClusterIPs updates the slices after the ports of a Service changed. It returns the
// Services with an endpoint that became, or no longer is, a cluster IP.
func (t *Tracker) updateClusterIPs(before, after []port) (touched []*service) {
	had, has := clusterIPs(before), clusterIPs(after)
	for _, addr := range slices.Concat(had, has) {
		if slices.Contains(had, addr) && slices.Contains(has, addr) {
			continue
		}
		if block := blockOf(addr); !t.endpointIndex.blocks[block] {
			t.endpointIndex.blocks[block] = true
			for key, s := range t.slices {
				t.endpointIndex.add(key, s.full())
			}
		}
		for key := range t.endpointIndex.slices[addr] {
			s := t.slices[key]
			t.setRecord(key, s, *s.full())
			t.updateStrays(s, s.record.Family)
			if s.service != nil {
				touched = append(touched, s.service)
			}
		}
	}
	return touched
}

// clusterIPs returns the distinct cluster IPs of the ports.
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
