// SPDX-License-Identifier: Apache-2.0

package track

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// addresses are those that Services have as cluster IP or as external IP. A cluster IP
// is its Service's at every port: no user can catch what is sent there by naming
// it as an external IP (CVE-2020-8554).
type addresses map[netip.Addr]*sharers

// sharers are the Services that have one address. Many may have one external IP, so to
// add or remove one of them costs the same however many there are.
type sharers struct {
	cluster  []*service
	external map[*service]bool // nil: none had it yet
}

// others returns those with the external IP, in the order of their names.
func (s *sharers) others() []*service {
	return slices.SortedFunc(maps.Keys(s.external), func(a, b *service) int {
		return cmp.Or(cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
	})
}

// add notes that svc has f, and returns those whose external IP is another's by that.
func (a addresses) add(svc *service, f sdk.Frontend) []*service {
	addr := f.Addr.Addr()
	if f.Kind != sdk.ClusterIP && f.Kind != sdk.ExternalIP {
		return nil
	}
	s := a[addr]
	if s == nil {
		s = new(sharers)
		a[addr] = s
	}
	if f.Kind == sdk.ExternalIP {
		if s.external == nil {
			s.external = make(map[*service]bool)
		}
		if !s.external[svc] {
			s.external[svc] = true
			svc.addrs = append(svc.addrs, addr)
		}
		return nil
	}
	if slices.Contains(s.cluster, svc) {
		return nil
	}
	s.cluster = append(s.cluster, svc)
	svc.addrs = append(svc.addrs, addr)
	return s.others()
}

// remove forgets svc, and returns those whose external IP may be theirs by that.
func (a addresses) remove(svc *service) (touched []*service) {
	me := func(other *service) bool { return other == svc }
	for _, addr := range svc.addrs {
		s := a[addr]
		if s == nil {
			continue // it stood there twice
		}
		delete(s.external, svc)
		if slices.ContainsFunc(s.cluster, me) {
			s.cluster = slices.DeleteFunc(s.cluster, me)
			touched = append(touched, s.others()...)
		}
		if len(s.cluster)+len(s.external) == 0 {
			delete(a, addr)
		}
	}
	svc.addrs = svc.addrs[:0]
	return touched
}

// cluster returns the Service besides svc whose cluster IP f takes as an external IP; nil:
// it takes none.
func (a addresses) cluster(svc *service, f sdk.Frontend) *service {
	if f.Kind != sdk.ExternalIP {
		return nil
	}
	var first *service
	for _, other := range a[f.Addr.Addr()].cluster {
		if other != svc && (first == nil || holder{svc: other}.compare(holder{svc: first}) < 0) {
			first = other
		}
	}
	return first
}
