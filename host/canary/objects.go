// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A service is one of the canary's Services, with its one endpoint.
type service struct {
	name     string
	addr     netip.Addr
	port     uint16
	nodePort uint16 // zero: none
	endpoint netip.AddrPort
}

// track gives the tracker a Service.
func (c *Canary) track(s service) {
	c.tracker.SetService(s.object())
	c.tracker.SetSlice(s.slice(c.node))
}

func (s service) object() *corev1.Service {
	family := corev1.IPv4Protocol
	if s.addr.Is6() {
		family = corev1.IPv6Protocol
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: s.name}}
	svc.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: s.addr.String(), ClusterIPs: []string{s.addr.String()},
		IPFamilies: []corev1.IPFamily{family},
		Ports:      []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: int32(s.port), NodePort: int32(s.nodePort)}},
	}
	if s.nodePort != 0 {
		svc.Spec.Type = corev1.ServiceTypeNodePort
	}
	return svc
}

func (s service) slice(node string) *discoveryv1.EndpointSlice {
	kind := discoveryv1.AddressTypeIPv4
	if s.addr.Is6() {
		kind = discoveryv1.AddressTypeIPv6
	}
	ready, port, protocol, unnamed := true, int32(s.endpoint.Port()), corev1.ProtocolTCP, ""
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: Namespace, Name: s.name, Labels: map[string]string{discoveryv1.LabelServiceName: s.name}},
		AddressType: kind,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{s.endpoint.Addr().String()}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: &unnamed, Port: &port, Protocol: &protocol}},
	}
}
