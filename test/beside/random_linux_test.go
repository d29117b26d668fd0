// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"fmt"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A dice creates random Services.
type dice struct{ *rand.Rand }

func newDice(seed uint64) dice { return dice{rand.New(rand.NewPCG(seed, 1))} }

// oneIn returns true with probability 1/n.
func (d dice) oneIn(n int) bool { return d.IntN(n) == 0 }

func pick[T any](d dice, list ...T) T { return list[d.IntN(len(list))] }

// things returns n Services without common addresses and ports.
func (d dice) things(n int) []thing {
	list := make([]thing, n)
	for i := range list {
		list[i] = d.thing(i, fmt.Sprintf("random-%d", i))
	}
	return list
}

// thing returns a random Service whose addresses and ports are derived from n.
func (d dice) thing(n int, name string) thing {
	t := newThing(n, name, d.ends())
	d.ports(&t)
	if d.oneIn(6) {
		family(d.IntN(2))(&t)
	}
	spec := &t.service.Spec
	base := int32(30010 + 10*n)
	switch d.IntN(5) {
	case 0:
		nodePorts(base)(&t)
	case 1, 2:
		d.loadBalancer(&t, n)
		if d.oneIn(2) {
			nodePorts(base)(&t)
		}
	case 3:
		if nodePorts(base)(&t); len(spec.Ports) == 2 && spec.Ports[0].Port == spec.Ports[1].Port && d.oneIn(2) {
			samePort(base)(&t)
		}
	}
	if d.oneIn(3) {
		externalIPs(fmt.Sprintf("203.0.113.%d", 50+n), fmt.Sprintf("2001:db8:ee::%x", 50+n))(&t)
	}
	if (spec.Type != corev1.ServiceTypeClusterIP || len(spec.ExternalIPs) > 0) && d.oneIn(2) {
		externalLocal(&t)
		if spec.Type == corev1.ServiceTypeLoadBalancer {
			healthPort(base + 9)(&t)
		}
	}
	if d.oneIn(4) {
		internalLocal(&t)
	}
	if d.oneIn(8) {
		sticky(600)(&t)
	}
	spec.PublishNotReadyAddresses = d.oneIn(8)
	return t
}

// ports sets one to three ports. Some Services have the same number in both protocols.
func (d dice) ports(t *thing) {
	spec := &t.service.Spec
	switch d.IntN(4) {
	case 0:
		spec.Ports = spec.Ports[d.IntN(2):][:1]
		spec.Ports[0].Name = ""
	case 1:
		extra := corev1.ServicePort{Name: "extra", Protocol: pick(d, corev1.ProtocolTCP, corev1.ProtocolUDP), Port: 443, TargetPort: intstr.FromString("named")}
		spec.Ports = append(spec.Ports, extra)
	case 2:
		spec.Ports[1].Port = 53
	}
}

func (d dice) loadBalancer(t *thing, n int) {
	addrs := []string{fmt.Sprintf("198.51.100.%d", n+1), fmt.Sprintf("2001:db8:e::%x", n+1)}
	switch d.IntN(6) {
	case 0:
		addrs[0] = "proxy:" + addrs[0]
	case 1:
		addrs = append(addrs, "lb.example.org", fmt.Sprintf("198.51.100.%d", n+120))
	case 2:
		addrs = nil
	}
	loadBalancer(addrs...)(t)
	if d.oneIn(2) {
		var ranges []string
		for range 1 + d.IntN(3) {
			ranges = append(ranges, pick(d, "198.18.0.0/16", "198.18.0.7/32", "192.0.2.0/24", "192.0.2.10/32", "10.244.1.2/32", "10.244.0.0/16", "203.0.113.10/32",
				"0.0.0.0/0", "::/0", "2001:db8:c::/48", "2001:db8::10/128", "fd00:10:244:1::/64", "2001:db8::/32", "192.0.2.11/32"))
		}
		sources(ranges...)(t)
	}
}

// ends returns up to five endpoints, in any state.
func (d dice) ends() []end {
	if d.oneIn(8) {
		return nil
	}
	places := []string{"near0", "near1", "far0", "far1", "far0", "near0", "node", "other"}
	style := d.IntN(6) // all ready, or mixed
	hinted := d.oneIn(5)
	var list []end
	for range 1 + d.IntN(4) {
		e := on(pick(d, places...), pick[int32](d, 8080, 8080, 8081, 9090))
		if style > 2 {
			e = e.is(d.oneIn(3), !d.oneIn(3), d.oneIn(2))
		}
		if style == 2 {
			e.slice = d.IntN(2)
		}
		if hinted && !d.oneIn(8) {
			e = e.zone(pick(d, "zone-a", "zone-a", "zone-b"))
			if d.oneIn(3) {
				e = e.forNode(pick(d, here, there))
			}
		}
		if d.oneIn(10) {
			e.state = discoveryv1.EndpointConditions{}
		}
		e.unnamed = d.oneIn(12)
		// If one endpoint occurs twice, both have the same state, or the order in which kube-proxy reads them would
		// decide.
		if i := slices.IndexFunc(list, func(f end) bool { return f.place == e.place && f.port == e.port }); i >= 0 {
			e.state, e.hints, e.unnamed = list[i].state, list[i].hints, list[i].unnamed
		}
		list = append(list, e)
	}
	return list
}
