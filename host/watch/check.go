// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// defaultService fills in what an API server would have filled in.
func defaultService(svc *corev1.Service) {
	svc.Namespace = cmp.Or(svc.Namespace, metav1.NamespaceDefault)
	spec := &svc.Spec
	spec.Type = cmp.Or(spec.Type, corev1.ServiceTypeClusterIP)
	spec.SessionAffinity = cmp.Or(spec.SessionAffinity, corev1.ServiceAffinityNone)
	if len(spec.ClusterIPs) == 0 && spec.ClusterIP != "" {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if spec.ClusterIP == "" && len(spec.ClusterIPs) > 0 {
		spec.ClusterIP = spec.ClusterIPs[0]
	}
	if spec.InternalTrafficPolicy == nil {
		cluster := corev1.ServiceInternalTrafficPolicyCluster
		spec.InternalTrafficPolicy = &cluster
	}
	spec.ExternalTrafficPolicy = cmp.Or(spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	for i := range spec.Ports {
		spec.Ports[i].Protocol = cmp.Or(spec.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP && spec.SessionAffinityConfig == nil {
		timeout := corev1.DefaultClientIPServiceAffinitySeconds
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
	}
}

// defaultSlice fills in what an API server would have filled in. What is not said
// of a condition stays so: package reach knows what that means.
func defaultSlice(slice *discoveryv1.EndpointSlice) {
	slice.Namespace = cmp.Or(slice.Namespace, metav1.NamespaceDefault)
	for i := range slice.Ports {
		p := &slice.Ports[i]
		if p.Name == nil {
			p.Name = new(string)
		}
		if p.Protocol == nil {
			tcp := corev1.ProtocolTCP
			p.Protocol = &tcp
		}
	}
}

const maxAffinity = 86400 // seconds, a day

// checkService refuses what an API server would have refused, as far as it
// matters to a dataplane, and asks for what only an API server could choose.
func checkService(at place, svc *corev1.Service) {
	checkName(at, svc, validation.IsDNS1123Label)
	spec := &svc.Spec
	oneOf(at, "spec.type", spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName)
	oneOf(at, "spec.sessionAffinity", spec.SessionAffinity, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP)
	oneOf(at, "spec.internalTrafficPolicy", *spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	oneOf(at, "spec.externalTrafficPolicy", spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	if spec.Type == corev1.ServiceTypeExternalName || spec.ClusterIP == corev1.ClusterIPNone {
		return // never served
	}
	checkClusterIPs(at, spec)
	checkPorts(at, spec)
	checkAddresses(at, svc)
	if c := spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		if s := *c.ClientIP.TimeoutSeconds; s < 1 || s > maxAffinity {
			at.bad("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "%d is not from 1 to %d", s, maxAffinity)
		}
	}
	if n := spec.HealthCheckNodePort; n < 0 || n > 65535 {
		at.bad("spec.healthCheckNodePort", "%d is no port", n)
	}
}

func checkName(at place, o metav1.Object, valid func(string) []string) {
	if o.GetName() == "" {
		at.bad("metadata.name", "is missing")
	} else if why := valid(o.GetName()); len(why) > 0 {
		at.bad("metadata.name", "%q: %s", o.GetName(), why[0])
	}
	if ns := o.GetNamespace(); ns != "" {
		if why := validation.IsDNS1123Label(ns); len(why) > 0 {
			at.bad("metadata.namespace", "%q: %s", ns, why[0])
		}
	}
}

func checkClusterIPs(at place, spec *corev1.ServiceSpec) {
	if spec.ClusterIP == "" {
		at.bad("spec.clusterIP", "is missing: an API server would choose an address, in a file you do")
		return
	}
	if spec.ClusterIPs[0] != spec.ClusterIP {
		at.bad("spec.clusterIPs[0]", "%q differs from spec.clusterIP, which is %q", spec.ClusterIPs[0], spec.ClusterIP)
	}
	if len(spec.ClusterIPs) > 2 {
		at.bad("spec.clusterIPs", "may be one address in each IP family, not %d", len(spec.ClusterIPs))
	}
	seen := make(map[bool]string)
	for i, text := range spec.ClusterIPs {
		addr, err := netip.ParseAddr(text)
		path := fmt.Sprintf("spec.clusterIPs[%d]", i)
		if i == 0 {
			path = "spec.clusterIP"
		}
		if err != nil {
			at.bad(path, "%q is no IP address", text)
			continue
		}
		if other, twice := seen[addr.Is4()]; twice {
			at.bad(path, "%s is of the same IP family as %s", text, other)
		}
		seen[addr.Is4()] = text
	}
}

func checkPorts(at place, spec *corev1.ServiceSpec) {
	if len(spec.Ports) == 0 {
		at.bad("spec.ports", "is missing")
	}
	names := make(map[string]int)
	numbers := make(map[string]int)
	for i := range spec.Ports {
		p := &spec.Ports[i]
		path := fmt.Sprintf("spec.ports[%d]", i)
		oneOf(at, path+".protocol", p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		checkPort(at, path, p, spec)
		if j, twice := names[p.Name]; twice {
			at.bad(path+".name", "%q is the name of spec.ports[%d] too", p.Name, j)
		}
		names[p.Name] = i
		once(at, numbers, fmt.Sprintf("port %d/%s", p.Port, p.Protocol), path+".port", i)
		if p.NodePort != 0 {
			once(at, numbers, fmt.Sprintf("node port %d/%s", p.NodePort, p.Protocol), path+".nodePort", i)
		}
	}
}

func once(at place, seen map[string]int, what, path string, i int) {
	if j, twice := seen[what]; twice {
		at.bad(path, "%s is that of spec.ports[%d] too", what, j)
		return
	}
	seen[what] = i
}

func checkPort(at place, path string, p *corev1.ServicePort, spec *corev1.ServiceSpec) {
	if p.Port < 1 || p.Port > 65535 {
		at.bad(path+".port", "%d is not from 1 to 65535", p.Port)
	}
	switch {
	case p.NodePort < 0 || p.NodePort > 65535:
		at.bad(path+".nodePort", "%d is not from 1 to 65535", p.NodePort)
	case p.NodePort == 0 && spec.Type == corev1.ServiceTypeNodePort:
		at.bad(path+".nodePort", "is missing: an API server would choose a port, in a file you do")
	case p.NodePort != 0 && spec.Type == corev1.ServiceTypeClusterIP:
		at.bad(path+".nodePort", "is only for the types NodePort and LoadBalancer")
	}
	if p.Name == "" {
		if len(spec.Ports) > 1 {
			at.bad(path+".name", "is missing: with several ports each needs one")
		}
	} else if why := validation.IsDNS1123Label(p.Name); len(why) > 0 {
		at.bad(path+".name", "%q: %s", p.Name, why[0])
	}
}

func checkAddresses(at place, svc *corev1.Service) {
	for i, text := range svc.Spec.ExternalIPs {
		checkAddress(at, fmt.Sprintf("spec.externalIPs[%d]", i), text)
	}
	for i, in := range svc.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			checkAddress(at, fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i), in.IP)
		}
	}
	for i, text := range svc.Spec.LoadBalancerSourceRanges {
		if _, err := netip.ParsePrefix(strings.TrimSpace(text)); err != nil {
			at.bad(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), "%q is no range such as 10.0.0.0/8", text)
		}
	}
}

func checkAddress(at place, path, text string) {
	if _, err := netip.ParseAddr(text); err != nil {
		at.bad(path, "%q is no IP address", text)
	}
}

// checkSlice refuses a slice that says nothing sound. A single endpoint that
// may not be used is left to package reach, so that it does not hide the others.
func checkSlice(at place, slice *discoveryv1.EndpointSlice) {
	checkName(at, slice, validation.IsDNS1123Subdomain)
	oneOf(at, "addressType", slice.AddressType, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)
	for i := range slice.Ports {
		path := fmt.Sprintf("ports[%d]", i)
		oneOf(at, path+".protocol", *slice.Ports[i].Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		if n := slice.Ports[i].Port; n != nil && (*n < 0 || *n > 65535) {
			at.bad(path+".port", "%d is not from 1 to 65535", *n)
		}
	}
	for i := range slice.Endpoints {
		if len(slice.Endpoints[i].Addresses) == 0 {
			at.bad(fmt.Sprintf("endpoints[%d].addresses", i), "is missing")
		}
	}
}

func checkNode(at place, node *corev1.Node) {
	checkName(at, node, validation.IsDNS1123Subdomain)
	for i, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			checkAddress(at, fmt.Sprintf("status.addresses[%d].address", i), a.Address)
		}
	}
}
