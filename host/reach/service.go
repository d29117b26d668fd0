// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pointsman/pointsman/sdk"
)

// A Service holds the fields of a Kubernetes Service that we use.
type Service struct {
	Created     int64        // Unix seconds; the older of two Services takes precedence
	ClusterIPs  []netip.Addr // at most one in each family
	ExternalIPs []netip.Addr
	VIPs        []netip.Addr   // load balancer IPs with ipMode VIP, which the node serves itself
	Sources     []netip.Prefix // loadBalancerSourceRanges, of both families
	Unreadable  bool           // a source range is invalid, so the VIPs are not served
	Internal    sdk.Policy     // policy of the ClusterIP
	External    sdk.Policy     // policy of all other frontends
	Affinity    time.Duration
	HealthPort  uint16
	Ports       []Port
	Problems    []Problem
}

// A Port is one port of a Service, or of all endpoints of an EndpointSlice.
type Port struct {
	Name     string
	Protocol sdk.Protocol
	Number   uint16
	NodePort uint16 // zero: none
}

const (
	serviceProxyName = "service.kubernetes.io/service-proxy-name" // for objects of another proxy
	defaultAffinity  = time.Duration(corev1.DefaultClientIPServiceAffinitySeconds) * time.Second
)

// Ours reports whether an object with these labels is for this proxy: neither for another
// service proxy nor headless.
func Ours(m metav1.Object) bool {
	labels := m.GetLabels()
	_, foreign := labels[serviceProxyName]
	_, headless := labels[corev1.IsHeadlessService]
	return !foreign && !headless
}

// Proxied reports whether svc needs a service proxy: it is ours and has a cluster IP.
func Proxied(svc *corev1.Service) bool {
	return Ours(svc) && svc.Spec.Type != corev1.ServiceTypeExternalName &&
		svc.Spec.ClusterIP != "" && svc.Spec.ClusterIP != corev1.ClusterIPNone
}

// Read fills s from svc, and reuses the memory of its slices.
func (s *Service) Read(svc *corev1.Service) {
	*s = Service{
		ClusterIPs: s.ClusterIPs[:0], ExternalIPs: s.ExternalIPs[:0], VIPs: s.VIPs[:0],
		Sources: s.Sources[:0], Ports: s.Ports[:0],
		Internal: sdk.Cluster, External: sdk.Cluster,
	}
	if !svc.CreationTimestamp.IsZero() {
		s.Created = svc.CreationTimestamp.Unix()
	}
	s.readPolicies(svc)
	s.readAddresses(svc)
	for _, text := range svc.Spec.LoadBalancerSourceRanges {
		s.readSource(text)
	}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		s.Ports = addPort(s.Ports, Port{Name: p.Name, Number: port(p.Port), NodePort: port(p.NodePort)}, p.Protocol, s.problem)
	}
}

func (s *Service) readPolicies(svc *corev1.Service) {
	spec := &svc.Spec
	if ptr.Deref(spec.InternalTrafficPolicy, "") == corev1.ServiceInternalTrafficPolicyLocal {
		s.Internal = sdk.Local
	}
	if spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		s.External = sdk.Local
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		s.Affinity = affinity(spec.SessionAffinityConfig)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer && s.External == sdk.Local {
		s.HealthPort = port(spec.HealthCheckNodePort)
	}
}

func affinity(c *corev1.SessionAffinityConfig) time.Duration {
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil || *c.ClientIP.TimeoutSeconds <= 0 {
		return defaultAffinity
	}
	return time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
}

func (s *Service) readAddresses(svc *corev1.Service) {
	if len(svc.Spec.ClusterIPs) == 0 {
		s.ClusterIPs = s.readAddress(s.ClusterIPs, "cluster IP", svc.Spec.ClusterIP)
	}
	for _, text := range svc.Spec.ClusterIPs {
		s.ClusterIPs = s.readAddress(s.ClusterIPs, "cluster IP", text)
	}
	for _, text := range svc.Spec.ExternalIPs {
		s.ExternalIPs = s.readAddress(s.ExternalIPs, "external IP", text)
	}
	for i := range svc.Status.LoadBalancer.Ingress {
		in := &svc.Status.LoadBalancer.Ingress[i]
		if in.IP == "" || ptr.Deref(in.IPMode, corev1.LoadBalancerIPModeVIP) != corev1.LoadBalancerIPModeVIP {
			continue // a host name, or ipMode Proxy: traffic must pass the load balancer (KEP-1860)
		}
		s.VIPs = s.readAddress(s.VIPs, "load balancer IP", in.IP)
	}
}

func (s *Service) readAddress(to []netip.Addr, what, text string) []netip.Addr {
	addr, ok := parseAddr(text)
	if !ok {
		s.problem(InvalidAddress, "%s %q is not an IP address; it is not served", what, text)
		return to
	}
	return append(to, addr)
}

func (s *Service) readSource(text string) {
	p, ok := parsePrefix(text)
	if !ok {
		s.Unreadable = true
		s.problem(InvalidAddress, "source range %q is not a CIDR; the load balancer IPs are not served until it is corrected", text)
		return
	}
	s.Sources = append(s.Sources, p)
}

// addPort adds p to ports, or a problem with it.
func addPort(ports []Port, p Port, protocol corev1.Protocol, problem func(reason, format string, args ...any)) []Port {
	known := false
	switch p.Protocol, known = protocolOf(protocol); {
	case !known:
		problem(UnknownValue, "port %q has unknown protocol %q; it is not used", p.Name, protocol)
	case p.Number == 0:
		problem(InvalidPort, "port %q has no valid number; it is not used", p.Name)
	case slices.ContainsFunc(ports, func(q Port) bool { return q.Name == p.Name && q.Protocol == p.Protocol }):
		problem(InvalidPort, "port %q (%s) has number %d, but an earlier port with this name and protocol is used", p.Name, p.Protocol, p.Number)
	default:
		return append(ports, p)
	}
	return ports
}

func (s *Service) problem(reason, format string, args ...any) {
	s.Problems = append(s.Problems, Problem{reason, fmt.Sprintf(format, args...)})
}

// Equal reports whether s and t have the same effect.
func (s *Service) Equal(t *Service) bool {
	return s.Created == t.Created &&
		s.Unreadable == t.Unreadable &&
		s.Internal == t.Internal &&
		s.External == t.External &&
		s.Affinity == t.Affinity &&
		s.HealthPort == t.HealthPort &&
		slices.Equal(s.ClusterIPs, t.ClusterIPs) &&
		slices.Equal(s.ExternalIPs, t.ExternalIPs) &&
		slices.Equal(s.VIPs, t.VIPs) &&
		slices.Equal(s.Sources, t.Sources) &&
		slices.Equal(s.Ports, t.Ports) &&
		slices.Equal(s.Problems, t.Problems)
}

// Clone returns a copy that later calls of s.Read do not modify.
func (s *Service) Clone() *Service {
	c := *s
	c.ClusterIPs = slices.Clone(s.ClusterIPs)
	c.ExternalIPs = slices.Clone(s.ExternalIPs)
	c.VIPs = slices.Clone(s.VIPs)
	c.Sources = slices.Clone(s.Sources)
	c.Ports = slices.Clone(s.Ports)
	return &c
}

func protocolOf(p corev1.Protocol) (sdk.Protocol, bool) {
	switch p {
	case corev1.ProtocolTCP, "":
		return sdk.TCP, true
	case corev1.ProtocolUDP:
		return sdk.UDP, true
	case corev1.ProtocolSCTP:
		return sdk.SCTP, true
	}
	return 0, false
}

// port returns n as a port number, or zero if it is out of range.
func port(n int32) uint16 {
	if n < 0 || n > 65535 {
		return 0
	}
	return uint16(n)
}
