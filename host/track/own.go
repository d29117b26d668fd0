// SPDX-License-Identifier: Apache-2.0

package track

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/sdk"
)

// owners decides which Service owns a frontend, because a packet can go to only one Service.
// All Services that ask for the same address, port and protocol are in a queue, and the first
// in the queue is the owner.
//
// A cluster IP belongs to its Service at every port, not just at those that the Service lists.
// So no user can intercept traffic to it by using it as an external IP at another port
// (CVE-2020-8554). Therefore cluster IPs and external IPs are also in a queue for the whole
// address.
type owners map[claim][]holder

// A claim is an address, port and protocol. Only one Service can own it at a time.
type claim struct {
	addr     netip.AddrPort
	protocol sdk.Protocol
}

// wholeAddress returns the claim of an address at every port. It has no port.
func wholeAddress(addr netip.Addr) claim { return claim{addr: netip.AddrPortFrom(addr, 0)} }

// healthPort returns the claim of a healthCheckNodePort. It has no address.
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
		h.svc.key.compare(g.svc.key),
		cmp.Compare(h.port, g.port),
	)
}

// claim adds svc to the queues of everything it asks for, and adds the Services in those queues
// whose frontends may have another owner now to touched.
func (o owners) claim(svc *service, touched map[*service]bool) {
	add := func(c claim, h holder) {
		i, _ := slices.BinarySearchFunc(o[c], h, holder.compare)
		o[c] = slices.Insert(o[c], i, h)
		svc.held = append(svc.held, c)
		o.touch(c, h.kind, touched)
	}
	for i, p := range svc.ports {
		first := i == 0 || p.Family != svc.ports[i-1].Family // all ports of a family have the same addresses
		for _, f := range p.Frontends {
			add(claim{f.Addr, p.Port.Protocol}, holder{svc, i, f.Kind})
			if first && (f.Kind == sdk.ClusterIP || f.Kind == sdk.ExternalIP) {
				add(wholeAddress(f.Addr.Addr()), holder{svc, i, f.Kind})
			}
		}
	}
	if len(svc.ports) > 0 && svc.spec.HealthPort != 0 {
		add(healthPort(svc.spec.HealthPort), holder{svc: svc})
	}
}

// release removes svc from all queues, and adds the remaining Services whose frontends may have
// another owner now to touched.
func (o owners) release(svc *service, touched map[*service]bool) {
	for _, c := range svc.held {
		var kind sdk.Kind
		o[c] = slices.DeleteFunc(o[c], func(h holder) bool {
			if h.svc == svc {
				kind = h.kind
			}
			return h.svc == svc
		})
		if o.touch(c, kind, touched); len(o[c]) == 0 {
			delete(o, c)
		}
	}
	svc.held = svc.held[:0]
}

// touch adds the Services in the queue of c to touched, after a holder of that kind came or went. A
// whole address has another owner only if the holder has it as cluster IP: thousands of
// Services may share an external IP, and a change of one must not cost more for that.
func (o owners) touch(c claim, kind sdk.Kind, touched map[*service]bool) {
	if c.addr.Port() == 0 && kind != sdk.ClusterIP {
		return
	}
	for _, h := range o[c] {
		touched[h.svc] = true
	}
}

// owner returns the Service, and its port, that owns frontend f of port i of svc.
func (o owners) owner(svc *service, i int, f sdk.Frontend) (*service, int) {
	if f.Kind == sdk.ExternalIP {
		if first := o[wholeAddress(f.Addr.Addr())][0]; first.kind == sdk.ClusterIP {
			return first.svc, first.port
		}
	}
	first := o[claim{f.Addr, svc.ports[i].Port.Protocol}][0]
	return first.svc, first.port
}

// healthPort returns the healthCheckNodePort of svc, or zero if it has none or another Service
// owns it.
func (o owners) healthPort(svc *service) uint16 {
	if len(svc.ports) == 0 || svc.spec.HealthPort == 0 || o[healthPort(svc.spec.HealthPort)][0].svc != svc {
		return 0
	}
	return svc.spec.HealthPort
}

func takenProblem(what string, owner *service) reach.Problem {
	return reach.Problem{
		Reason:  FrontendTaken,
		Message: fmt.Sprintf("%s belongs to Service %s; it is not served for this one", what, owner.key),
	}
}
