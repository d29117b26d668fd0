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
	slices map[netip.Addr]map[*slice]bool
}

// blockOf returns the block of an address: its first half (/16 or /64). Cluster IPs come from
// few blocks, however many there are.
func blockOf(addr netip.Addr) netip.Prefix {
	block, _ := addr.Prefix(addr.BitLen() / 2)
	return block
}

func (x *endpointIndex) add(s *slice) {
	s.indexed = false
	for _, ep := range s.record.Endpoints {
		if !x.blocks[blockOf(ep.Addr)] {
			continue
		}
		if x.slices[ep.Addr] == nil {
			x.slices[ep.Addr] = make(map[*slice]bool)
		}
		x.slices[ep.Addr][s] = true
		s.indexed = true
	}
}

func (x *endpointIndex) remove(s *slice) {
	for _, ep := range s.record.Endpoints {
		delete(x.slices[ep.Addr], s)
		if len(x.slices[ep.Addr]) == 0 {
			delete(x.slices, ep.Addr)
		}
	}
}

// withEndpointsAt returns the Services with an endpoint that is a cluster IP of these ports. From
// then on the index has the block of that cluster IP.
func (t *Tracker) withEndpointsAt(ports []port) (touched []*service) {
	for _, p := range ports {
		for _, f := range p.Frontends {
			if f.Kind != sdk.ClusterIP {
				continue
			}
			if block := blockOf(f.Addr.Addr()); !t.endpointIndex.blocks[block] {
				t.endpointIndex.blocks[block] = true
				for _, s := range t.slices {
					t.endpointIndex.add(s)
				}
			}
			for s := range t.endpointIndex.slices[f.Addr.Addr()] {
				if s.service != nil {
					touched = append(touched, s.service)
				}
			}
		}
	}
	return touched
}

// usable returns the records of the slices of svc, without the endpoints that are cluster IPs of
// other Services. It updates the problems of the slices.
func (t *Tracker) usable(svc *service) []*reach.Slice {
	records := make([]*reach.Slice, len(svc.slices))
	for i, s := range svc.slices {
		records[i] = &s.record
		if s.indexed {
			records[i] = s.record.WithoutClusterIPs(t.clusterIPOf)
		}
		if !slices.Equal(s.problems, records[i].Problems) {
			t.warnNew("EndpointSlice "+svc.key.Namespace+"/"+s.name, s.problems, records[i].Problems)
			s.problems = records[i].Problems
		}
	}
	return records
}

// clusterIPOf returns the name of the Service that has addr as its cluster IP, or "". It
// returns "" also for addresses of this node: they lead to a socket on the node, as those of
// the canary and of a machine without a cluster do.
func (t *Tracker) clusterIPOf(addr netip.Addr) string {
	if addr.IsLoopback() || slices.Contains(t.thisNode.Addrs, addr) {
		return ""
	}
	return t.owners.clusterIP(addr)
}
