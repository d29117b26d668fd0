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

// owners decides which Service an address belongs to, because a packet can go to
// one only. The Services that ask for it are in a queue, and the first is the owner.
type owners struct {
	queues    map[claim][]holder
	addresses addresses
}

// A claim is what one Service can hold at a time: an address, port and protocol.
type claim struct {
	addr     netip.AddrPort
	protocol sdk.Protocol
}

// String reads as in a scenario: "172.30.0.41:80/tcp".
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

// A holder is what asks: a Service, by one of its ports, as one kind of frontend.
// That of a health port has neither port nor kind.
type holder struct {
	svc  *service
	port int
	kind sdk.Kind
}

// precedence of kinds: what the cluster gave takes precedence over what a user asked for.
var precedence = [...]int{sdk.ClusterIP: 1, sdk.LoadBalancer: 2, sdk.ExternalIP: 3, sdk.NodePort: 4}

// compare returns the order of a queue: by kind, then the older Service, then by name.
func (h holder) compare(g holder) int {
	return cmp.Or(
		cmp.Compare(precedence[h.kind], precedence[g.kind]),
		cmp.Compare(h.svc.spec.Created, g.svc.spec.Created),
		cmp.Compare(h.svc.key.Namespace, g.svc.key.Namespace),
		cmp.Compare(h.svc.key.Name, g.svc.key.Name),
		cmp.Compare(h.port, g.port),
	)
}

// claim puts svc into the queues of all it asks for, and returns the others
// in them.
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

// release takes svc out of every queue, and returns those that stay in them.
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

// lost says of the frontends of port i that are another's, whose they are.
func (o *owners) lost(svc *service, i int) []reach.Problem {
	var problems []reach.Problem
	for _, f := range svc.ports[i].Frontends {
		if owner, port := o.owner(svc, i, f); owner != svc || port != i {
			problems = append(problems, taken(f.String(), owner))
		}
	}
	return problems
}

// healthPort returns svc's healthCheckNodePort if it owns it, or zero.
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
