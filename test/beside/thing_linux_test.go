// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const namespace = "default"

// A thing is a Service with its EndpointSlices.
type thing struct {
	service *corev1.Service
	ends    []end
}

// An end is an endpoint: a place, and its state.
type end struct {
	place   string
	port    int32 // of the place, for all ports of the Service
	state   discoveryv1.EndpointConditions
	hints   *discoveryv1.EndpointHints
	unnamed bool // its node is not given
	slice   int  // index of its slice
}

func on(name string, port int32) end {
	return end{place: name, port: port, state: conditions(true, true, false)}
}

func (e end) is(ready, serving, terminating bool) end {
	e.state = conditions(ready, serving, terminating)
	return e
}

func (e end) in(slice int) end { e.slice = slice; return e }

func (e end) zone(zones ...string) end {
	e.hints = &discoveryv1.EndpointHints{}
	for _, z := range zones {
		e.hints.ForZones = append(e.hints.ForZones, discoveryv1.ForZone{Name: z})
	}
	return e
}

func (e end) forNode(name string) end {
	hints := *e.hints // hints name nodes as well as zones
	hints.ForNodes = []discoveryv1.ForNode{{Name: name}}
	e.hints = &hints
	return e
}

func conditions(ready, serving, terminating bool) discoveryv1.EndpointConditions {
	return discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
}

// An edit changes a Service before it is created.
type edit func(*thing)

// newThing returns Service number n: in both families, with TCP and UDP at port 80.
func newThing(n int, name string, ends []end, edits ...edit) thing {
	families := corev1.IPFamilyPolicyRequireDualStack
	t := thing{ends: ends, service: &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: &families, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			ClusterIP: clusterIPs(n)[0], ClusterIPs: clusterIPs(n),
			Ports: []corev1.ServicePort{
				{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt(8080)},
				{Name: "udp", Protocol: corev1.ProtocolUDP, Port: 80, TargetPort: intstr.FromInt(8080)},
			},
		},
	}}
	for _, e := range edits {
		e(&t)
	}
	return t
}

func clusterIPs(n int) []string {
	return []string{fmt.Sprintf("10.96.%d.%d", 1+n/200, 10+n%200), fmt.Sprintf("fd00:10:96::%x", 0x1000+n)}
}

// nodePorts makes it a NodePort Service; its ports are base, base+1, …
func nodePorts(base int32) edit {
	return func(t *thing) {
		if t.service.Spec.Type != corev1.ServiceTypeLoadBalancer {
			t.service.Spec.Type = corev1.ServiceTypeNodePort
		}
		for i := range t.service.Spec.Ports {
			t.service.Spec.Ports[i].NodePort = base + int32(i)
		}
	}
}

// samePort gives all its ports one node port, once per protocol.
func samePort(base int32) edit {
	return func(t *thing) {
		nodePorts(base)(t)
		for i := range t.service.Spec.Ports {
			t.service.Spec.Ports[i].NodePort = base
		}
	}
}

// loadBalancer makes it a LoadBalancer Service with addresses in its status.
func loadBalancer(addrs ...string) edit {
	return func(t *thing) {
		t.service.Spec.Type = corev1.ServiceTypeLoadBalancer
		without := false
		t.service.Spec.AllocateLoadBalancerNodePorts = &without
		for _, addr := range addrs {
			t.service.Status.LoadBalancer.Ingress = append(t.service.Status.LoadBalancer.Ingress, ingress(addr))
		}
	}
}

// ingress returns an address in a status: an IP, one with the mode Proxy, or a host's name.
func ingress(addr string) corev1.LoadBalancerIngress {
	mode := corev1.LoadBalancerIPModeVIP
	text, proxied := strings.CutPrefix(addr, "proxy:")
	switch {
	case proxied:
		mode = corev1.LoadBalancerIPModeProxy
	case strings.Contains(addr, "example"):
		return corev1.LoadBalancerIngress{Hostname: addr}
	}
	return corev1.LoadBalancerIngress{IP: text, IPMode: &mode}
}

func sources(ranges ...string) edit {
	return func(t *thing) { t.service.Spec.LoadBalancerSourceRanges = ranges }
}

func externalIPs(addrs ...string) edit {
	return func(t *thing) { t.service.Spec.ExternalIPs = addrs }
}

func externalLocal(t *thing) {
	t.service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

// healthPort sets the health port: one that the server picks may be a node port of another object.
func healthPort(number int32) edit {
	return func(t *thing) { t.service.Spec.HealthCheckNodePort = number }
}

func internalLocal(t *thing) {
	local := corev1.ServiceInternalTrafficPolicyLocal
	t.service.Spec.InternalTrafficPolicy = &local
}

func sticky(seconds int32) edit {
	return func(t *thing) {
		t.service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		t.service.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
}

// family makes it single-stack.
func family(i int) edit {
	return func(t *thing) {
		single := corev1.IPFamilyPolicySingleStack
		spec := &t.service.Spec
		spec.IPFamilyPolicy = &single
		spec.IPFamilies = spec.IPFamilies[i : i+1]
		spec.ClusterIPs = spec.ClusterIPs[i : i+1]
		spec.ClusterIP = spec.ClusterIPs[0]
	}
}

func label(key, value string) edit {
	return func(t *thing) {
		if t.service.Labels == nil {
			t.service.Labels = make(map[string]string)
		}
		t.service.Labels[key] = value
	}
}

// slices returns the EndpointSlices: one for each family, number, and port.
func (t thing) slices() []*discoveryv1.EndpointSlice {
	var all []*discoveryv1.EndpointSlice
	find := func(name string) *discoveryv1.EndpointSlice {
		i := slices.IndexFunc(all, func(s *discoveryv1.EndpointSlice) bool { return s.Name == name })
		if i < 0 {
			return nil
		}
		return all[i]
	}
	for family, addressType := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		for _, e := range t.ends {
			name := fmt.Sprintf("%s-%d-%d-%d", t.service.Name, family, e.slice, e.port)
			s := find(name)
			if s == nil {
				s = &discoveryv1.EndpointSlice{
					ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: t.sliceLabels()},
					AddressType: addressType, Ports: t.endpointPorts(e.port),
				}
				all = append(all, s)
			}
			s.Endpoints = append(s.Endpoints, e.object(family))
		}
	}
	return all
}

func (t thing) sliceLabels() map[string]string {
	labels := map[string]string{discoveryv1.LabelServiceName: t.service.Name}
	for key, value := range t.service.Labels {
		labels[key] = value
	}
	return labels
}

func (t thing) endpointPorts(number int32) []discoveryv1.EndpointPort {
	var list []discoveryv1.EndpointPort
	for _, p := range t.service.Spec.Ports {
		list = append(list, discoveryv1.EndpointPort{Name: &p.Name, Port: &number, Protocol: &p.Protocol})
	}
	return list
}

func (e end) object(family int) discoveryv1.Endpoint {
	p := at(e.place)
	object := discoveryv1.Endpoint{Addresses: []string{p.addrs[family].String()}, Conditions: e.state, Hints: e.hints}
	if !e.unnamed {
		object.NodeName = &p.node
	}
	return object
}
