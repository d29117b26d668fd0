// SPDX-License-Identifier: Apache-2.0

package track

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/sdk"
)

// owners decides which Service owns a frontend, because a packet can go to only one Service.
// All Services that ask for the same address, port and protocol are in a queue, and the first
// in the queue is the owner.
type owners struct {
	queues    map[claim][]holder
	addresses addresses
}

// A claim is an address, port and protocol. Only one Service can own it at a time.
type claim struct {
	addr     netip.AddrPort
	protocol sdk.Protocol
}

// String returns a form such as "172.30.0.41:80/tcp", as in scenario files.
func (c claim) String() string {
	if !c.addr.Addr().IsValid() {
		return fmt.Sprintf("health check node port %d", c.addr.Port())
	}
	return fmt.Sprintf("%s/%s", c.addr, c.protocol)
}

// healthPort returns the claim of a healthCheckNodePort, which has no address.
func healthPort(number uint16) claim {
	return claim{addr: netip.AddrPortFrom(netip.Addr{}, number), protocol: sdk.TCP}
}

// A holder is an entry of a queue: a port of a Service that asks for the claim, with the kind
// of the frontend. For a healthCheckNodePort, port and kind are zero.
type holder struct {
	svc  *service
	port int
	kind sdk.Kind
}

// precedence orders kinds: an address that the cluster assigned wins over an address that a
// user wrote.
var precedence = [...]int{sdk.ClusterIP: 1, sdk.LoadBalancer: 2, sdk.ExternalIP: 3, sdk.NodePort: 4}

// compare orders a queue: by kind, then the older Service, then by name.
func (h holder) compare(g holder) int {
	return cmp.Or(
		cmp.Compare(precedence[h.kind], precedence[g.kind]),
		cmp.Compare(h.svc.spec.Created, g.svc.spec.Created),
		cmp.Compare(h.svc.key.Namespace, g.svc.key.Namespace),
		cmp.Compare(h.svc.key.Name, g.svc.key.Name),
		cmp.Compare(h.port, g.port),
	)
}

// claim adds svc to the queues of everything it asks for, and returns the other Services in
// these queues.
func (o *owners) claim(svc *service) (touched []*service) {
	for i, p := range svc.ports {
		for _, f := range p.Frontends {
			touched = append(touched, o.enqueue(claim{f.Addr, p.Port.Protocol}, holder{svc, i, f.Kind})...)
			touched = append(touched, o.addresses.add(svc, f)...)
		}
	}
	if len(svc.ports) > 0 && svc.spec.HealthPort != 0 {
		touched = append(touched, o.enqueue(healthPort(svc.spec.HealthPort), holder{svc: svc})...)
	}
	return touched
}

func (o *owners) enqueue(c claim, h holder) (others []*service) {
	queue := o.queues[c]
	others = services(queue)
	i, _ := slices.BinarySearchFunc(queue, h, holder.compare)
	o.queues[c] = slices.Insert(queue, i, h)
	h.svc.held = append(h.svc.held, c)
	return others
}

// release removes svc from all queues, and returns the Services that remain in them.
func (o *owners) release(svc *service) (touched []*service) {
	for _, c := range svc.held {
		queue := slices.DeleteFunc(o.queues[c], func(h holder) bool { return h.svc == svc })
		if len(queue) == 0 {
			delete(o.queues, c)
			continue
		}
		o.queues[c] = queue
		touched = append(touched, services(queue)...)
	}
	svc.held = svc.held[:0]
	return append(touched, o.addresses.remove(svc)...)
}

func services(queue []holder) []*service {
	var list []*service
	for _, h := range queue {
		list = append(list, h.svc)
	}
	return list
}

// owner returns the Service that owns frontend f of port i of svc.
func (o *owners) owner(svc *service, i int, f sdk.Frontend) (*service, int) {
	if other := o.addresses.cluster(svc, f); other != nil {
		return other, 0
	}
	first := o.queues[claim{f.Addr, svc.ports[i].Port.Protocol}][0]
	return first.svc, first.port
}

// lost returns a problem for each frontend of port i that another Service or port owns.
func (o *owners) lost(svc *service, i int) []reach.Problem {
	var problems []reach.Problem
	for _, f := range svc.ports[i].Frontends {
		if owner, port := o.owner(svc, i, f); owner != svc || port != i {
			problems = append(problems, taken(f.String(), owner))
		}
	}
	return problems
}

// healthPort returns the healthCheckNodePort of svc, or zero if it has none or another Service
// owns it.
func (o *owners) healthPort(svc *service) uint16 {
	number := svc.spec.HealthPort
	if number == 0 || o.queues[healthPort(number)][0].svc != svc {
		return 0
	}
	return number
}

func taken(what string, owner *service) reach.Problem {
	return reach.Problem{
		Reason:  FrontendTaken,
		Message: fmt.Sprintf("%s belongs to Service %s; it is not served for this one", what, owner.key),
	}
}

// addresses holds the cluster IPs and external IPs of Services. A cluster IP belongs to its
// Service at every port, not just at those that the Service lists. So no user can intercept
// traffic to it by using it as an external IP at another port (CVE-2020-8554).
type addresses map[netip.Addr]*sharers

// sharers are the Services that use one address. Many Services may share an external IP, so
// external is a set: adding and removing cost the same for any number of Services.
type sharers struct {
	cluster  []*service
	external map[*service]bool // nil until the first Service uses the address as external IP
}

// others returns the Services with this external IP, in order of name.
func (s *sharers) others() []*service {
	return slices.SortedFunc(maps.Keys(s.external), func(a, b *service) int {
		return cmp.Or(cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
	})
}

// add records that svc has f. If f is a cluster IP, it returns the Services that lose this
// address as an external IP.
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

// remove removes svc, and returns the Services that may now own an external IP that was a
// cluster IP of svc.
func (a addresses) remove(svc *service) (touched []*service) {
	isSvc := func(other *service) bool { return other == svc }
	for _, addr := range svc.addrs {
		s := a[addr]
		if s == nil {
			continue // svc.addrs has it twice: as cluster IP and as external IP
		}
		delete(s.external, svc)
		if slices.ContainsFunc(s.cluster, isSvc) {
			s.cluster = slices.DeleteFunc(s.cluster, isSvc)
			touched = append(touched, s.others()...)
		}
		if len(s.cluster)+len(s.external) == 0 {
			delete(a, addr)
		}
	}
	svc.addrs = svc.addrs[:0]
	return touched
}

// cluster returns the Service, other than svc, whose cluster IP is the external IP f; nil if
// there is none.
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
