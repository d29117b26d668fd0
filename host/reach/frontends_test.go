// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func service(spec corev1.ServiceSpec, ingress ...corev1.LoadBalancerIngress) *corev1.Service {
	if spec.Ports == nil {
		spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
	}
	if spec.ClusterIP == "" {
		spec.ClusterIP = "172.30.0.1"
	}
	svc := &corev1.Service{Spec: spec}
	svc.Status.LoadBalancer.Ingress = ingress
	return svc
}

func TestFrontends(t *testing.T) {
	local := corev1.ServiceInternalTrafficPolicyLocal
	etpLocal := corev1.ServiceExternalTrafficPolicyLocal
	proxy, vip := corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP
	tests := []struct {
		name     string
		svc      *corev1.Service
		want     string // a line for each port and family
		problems string
	}{
		{"a cluster IP alone (A1)", service(corev1.ServiceSpec{}), "http/tcp4: cluster-ip 172.30.0.1:80", ""},
		{"both families (A5)", service(corev1.ServiceSpec{ClusterIP: "172.30.0.1", ClusterIPs: []string{"172.30.0.1", "fd00::1"}}),
			"http/tcp4: cluster-ip 172.30.0.1:80\nhttp/tcp6: cluster-ip [fd00::1]:80", ""},
		{"every protocol of one port number (A4)", service(corev1.ServiceSpec{Ports: []corev1.ServicePort{
			{Name: "t", Port: 53, Protocol: corev1.ProtocolTCP}, {Name: "u", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "s", Port: 53, Protocol: corev1.ProtocolSCTP}}}),
			"t/tcp4: cluster-ip 172.30.0.1:53\nu/udp4: cluster-ip 172.30.0.1:53\ns/sctp4: cluster-ip 172.30.0.1:53", ""},
		{"two ports of one name", service(corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "a", Port: 53}, {Name: "a", Port: 54}, {Name: "a", Port: 53, Protocol: corev1.ProtocolUDP}}}),
			"a/tcp4: cluster-ip 172.30.0.1:53\na/udp4: cluster-ip 172.30.0.1:53", `port "a" (tcp) has number 54, but an earlier port with this name and protocol is used`},
		{"an unknown protocol", service(corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "q", Port: 53, Protocol: "QUIC"}}}), "", `port "q" has unknown protocol "QUIC"; it is not used`},
		{"each policy applies to its own frontends (A10, A11)", service(corev1.ServiceSpec{InternalTrafficPolicy: &local, Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080}}}),
			"http/tcp4: cluster-ip 172.30.0.1:80 local, node-port *:30080", ""},
		{"all kinds, external policy Local (A11)", service(corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: etpLocal, ExternalIPs: []string{"203.0.113.9"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080}}}, corev1.LoadBalancerIngress{IP: "203.0.113.1", IPMode: &vip}),
			"http/tcp4: cluster-ip 172.30.0.1:80, node-port *:30080 local, external-ip 203.0.113.9:80 local, load-balancer 203.0.113.1:80 local", ""},
		{"a load balancer without node ports has its address (A1)", service(corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}, corev1.LoadBalancerIngress{IP: "203.0.113.1"}),
			"http/tcp4: cluster-ip 172.30.0.1:80, load-balancer 203.0.113.1:80", ""},
		{"a load balancer with ipMode Proxy, and one with a host name only (A14)",
			service(corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}, corev1.LoadBalancerIngress{IP: "203.0.113.1", IPMode: &proxy}, corev1.LoadBalancerIngress{Hostname: "lb.example"}),
			"http/tcp4: cluster-ip 172.30.0.1:80", ""},
		{"source ranges apply only to the load balancer IP, by family (A13)",
			service(corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "172.30.0.1", ClusterIPs: []string{"172.30.0.1", "fd00::1"},
				LoadBalancerSourceRanges: []string{" 198.18.0.7/15", "2001:db8:1::/48"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080}}},
				corev1.LoadBalancerIngress{IP: "203.0.113.1"}, corev1.LoadBalancerIngress{IP: "2001:db8::1"}),
			"http/tcp4: cluster-ip 172.30.0.1:80, node-port *:30080, node-port 203.0.113.1:30080 from 198.18.0.0/15, load-balancer 203.0.113.1:80 from 198.18.0.0/15\n" +
				"http/tcp6: cluster-ip [fd00::1]:80, node-port *:30080, node-port [2001:db8::1]:30080 from 2001:db8:1::/48, load-balancer [2001:db8::1]:80 from 2001:db8:1::/48", ""},
		{"the node's address accepts node ports from every caller, even if it is the load balancer IP",
			service(corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerSourceRanges: []string{"198.18.0.0/15"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080}}},
				corev1.LoadBalancerIngress{IP: "192.0.2.10"}),
			"http/tcp4: cluster-ip 172.30.0.1:80, node-port *:30080, load-balancer 192.0.2.10:80 from 198.18.0.0/15", ""},
		{"a range that contains the node also admits the load balancer IP (A13)",
			service(corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerSourceRanges: []string{"192.0.2.0/24"}}, corev1.LoadBalancerIngress{IP: "203.0.113.1"}),
			"http/tcp4: cluster-ip 172.30.0.1:80, load-balancer 203.0.113.1:80 from 192.0.2.0/24 203.0.113.1/32", ""},
		{"ranges of only the other family admit no caller",
			service(corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerSourceRanges: []string{"2001:db8:1::/48"}}, corev1.LoadBalancerIngress{IP: "203.0.113.1"}),
			"http/tcp4: cluster-ip 172.30.0.1:80, load-balancer 203.0.113.1:80 from 203.0.113.1/32",
			"load balancer IP 203.0.113.1 is ipv4, and no source range is; all callers are dropped"},
		{"an invalid range admits no caller",
			service(corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerSourceRanges: []string{"10.0.0.0/8", "everyone"}}, corev1.LoadBalancerIngress{IP: "203.0.113.1"}),
			"http/tcp4: cluster-ip 172.30.0.1:80", `source range "everyone" is not a CIDR; the load balancer IPs are not served until it is corrected`},
		{"addresses of a family without a cluster IP (A5)",
			service(corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ExternalIPs: []string{"2001:db8::9"}}, corev1.LoadBalancerIngress{IP: "2001:db8::1"}),
			"http/tcp4: cluster-ip 172.30.0.1:80",
			"load balancer IP 2001:db8::1 is ipv6, and the Service has no cluster IP in that family; it is not served\n" +
				"external IP 2001:db8::9 is ipv6, and the Service has no cluster IP in that family; it is not served"},
		{"an address that is both external IP and load balancer IP has the source ranges",
			service(corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ExternalIPs: []string{"203.0.113.1"}, LoadBalancerSourceRanges: []string{"10.0.0.0/8"}}, corev1.LoadBalancerIngress{IP: "203.0.113.1"}),
			"http/tcp4: cluster-ip 172.30.0.1:80, load-balancer 203.0.113.1:80 from 10.0.0.0/8", ""},
		{"another Node's address is left out, this node's is not",
			service(corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ExternalIPs: []string{"198.51.100.66", "203.0.113.9"}},
				corev1.LoadBalancerIngress{IP: "198.51.100.66"}, corev1.LoadBalancerIngress{IP: "203.0.113.1"}, corev1.LoadBalancerIngress{IP: "192.0.2.10"}),
			"http/tcp4: cluster-ip 172.30.0.1:80, external-ip 203.0.113.9:80, load-balancer 192.0.2.10:80, load-balancer 203.0.113.1:80", ""},
		{"a cluster IP that no machine can have", service(corev1.ServiceSpec{ClusterIP: "255.255.255.255"}), "", "cluster IP 255.255.255.255 is the broadcast address; it is not served"},
		{"external addresses that no machine can have",
			service(corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ExternalIPs: []string{"255.255.255.255"}}, corev1.LoadBalancerIngress{IP: "255.255.255.255"}, corev1.LoadBalancerIngress{IP: "ff02::1"}),
			"http/tcp4: cluster-ip 172.30.0.1:80",
			"load balancer IP 255.255.255.255 is the broadcast address; it is not served\n" +
				"external IP 255.255.255.255 is the broadcast address; it is not served\n" +
				"load balancer IP ff02::1 is ipv6, and the Service has no cluster IP in that family; it is not served"},
		{"external IPs that would intercept traffic of others (A15)",
			service(corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.10", "10.180.3.4", "172.30.0.9", "127.0.0.1", "169.254.169.254", "0.0.0.0", "here"}}),
			"http/tcp4: cluster-ip 172.30.0.1:80",
			`external IP "here" is not an IP address; it is not served
external IP 192.0.2.10 is this node's own; name it in externalIPs.allow, or set externalIPs.nodeAddresses, to permit it; it is not served
external IP 10.180.3.4 is in a range of pods or cluster IPs; it is not served
external IP 172.30.0.9 is in a range of pods or cluster IPs; it is not served
external IP 127.0.0.1 is loopback; it is not served
external IP 169.254.169.254 is link-local; it is not served
external IP 0.0.0.0 is unspecified; it is not served`},
	}
	node := ThisNode{Node: "n1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.10")},
		Reserved: []netip.Prefix{netip.MustParsePrefix("10.180.0.0/16"), netip.MustParsePrefix("172.30.0.0/16")},
		Others:   map[netip.Addr]string{netip.MustParseAddr("198.51.100.66"): "n2", netip.MustParseAddr("192.0.2.10"): "n3"}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s Service
			s.Read(tt.svc)
			all, problems, _, _ := Frontends(&s, node)
			if got := frontendText(all); got != tt.want {
				t.Errorf("frontends\n%s\nwant\n%s", got, tt.want)
			}
			if got := problemText(problems); got != tt.problems {
				t.Errorf("problems\n%s\nwant\n%s", got, tt.problems)
			}
		})
	}
}

func frontendText(all []PortFrontends) string {
	var lines []string
	for _, pf := range all {
		var words []string
		for _, f := range pf.Frontends {
			words = append(words, f.String())
		}
		lines = append(lines, fmt.Sprintf("%s/%s%s: %s", pf.Port.Name, pf.Port.Protocol, strings.TrimPrefix(pf.Family.String(), "ipv"), strings.Join(words, ", ")))
	}
	return strings.Join(lines, "\n")
}

func problemText(problems []Problem) string {
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.Message)
	}
	return strings.Join(lines, "\n")
}

// NodeAddresses decides only about the node's own addresses.
func TestExternalIPsOfTheNode(t *testing.T) {
	own, also := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("10.180.0.1")
	h := ThisNode{Addrs: []netip.Addr{own, also, netip.MustParseAddr("169.254.1.1")}, Reserved: []netip.Prefix{netip.MustParsePrefix("10.180.0.0/16"), netip.MustParsePrefix("172.30.0.0/16")}}
	claims := service(corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.10", "10.180.0.1", "10.180.3.4", "172.30.0.9", "127.0.0.1", "169.254.1.1"}})
	allow := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for _, tt := range []struct {
		name           string
		nodeAddresses  NodeAddresses
		allow          []netip.Prefix
		served, warned bool
	}{
		{"refuse", RefuseNodeAddresses, nil, false, false},
		{"warn", WarnOfNodeAddresses, nil, true, true},
		{"serve", ServeNodeAddresses, nil, true, false},
		{"warn, and the range is allowed (A15)", WarnOfNodeAddresses, append(allow, netip.MustParsePrefix("127.0.0.0/8")), true, false},
		{"warn, and only another range is allowed", WarnOfNodeAddresses, []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h.NodeAddresses, h.ExternalIPs = tt.nodeAddresses, tt.allow
			var s Service
			s.Read(claims)
			all, problems, warnings, _ := Frontends(&s, h)
			want := "http/tcp4: cluster-ip 172.30.0.1:80"
			if tt.served {
				want += ", external-ip 192.0.2.10:80"
			}
			if got := frontendText(all); got != want {
				t.Errorf("%s, want %s; problems:\n%s", got, want, problemText(problems))
			}
			if text := problemText(warnings); (len(warnings) == 1 && strings.Contains(text, "192.0.2.10 ") && strings.Contains(text, "externalIPs.nodeAddresses")) != tt.warned {
				t.Errorf("warnings: %q", text)
			}
		})
	}
}

func TestProxied(t *testing.T) {
	label := func(key string) *corev1.Service {
		svc := service(corev1.ServiceSpec{})
		svc.Labels = map[string]string{key: ""}
		return svc
	}
	tests := []struct {
		name string
		svc  *corev1.Service
		want bool
	}{
		{"an ordinary Service", service(corev1.ServiceSpec{}), true},
		{"ExternalName (A1)", service(corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}), false},
		{"headless (A1)", service(corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}), false},
		{"without an address yet (A1)", &corev1.Service{}, false},
		{"of another proxy (A2)", label("service.kubernetes.io/service-proxy-name"), false},
		{"labelled headless (A2)", label("service.kubernetes.io/headless"), false},
	}
	for _, tt := range tests {
		if got := Proxied(tt.svc); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// Only a load balancer Service with the Local policy has a health check (A24).
func TestAffinityAndHealthPort(t *testing.T) {
	lb := corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, HealthCheckNodePort: 31000}
	cluster, port := lb, lb
	cluster.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	port.Type = corev1.ServiceTypeNodePort
	for _, tt := range []struct {
		spec     corev1.ServiceSpec
		affinity time.Duration
		health   uint16
	}{
		{corev1.ServiceSpec{}, 0, 0},
		{corev1.ServiceSpec{SessionAffinity: corev1.ServiceAffinityNone}, 0, 0},
		{corev1.ServiceSpec{SessionAffinity: corev1.ServiceAffinityClientIP}, 3 * time.Hour, 0},
		{corev1.ServiceSpec{SessionAffinity: corev1.ServiceAffinityClientIP, SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(7))}}}, 7 * time.Second, 0},
		{lb, 0, 31000}, {cluster, 0, 0}, {port, 0, 0},
	} {
		var s Service
		if s.Read(service(tt.spec)); s.Affinity != tt.affinity || s.HealthPort != tt.health {
			t.Errorf("%+v: affinity %s, health port %d", tt.spec, s.Affinity, s.HealthPort)
		}
	}
}

// Read does not modify clones of the record, and reading the same object twice allocates nothing.
func TestReadAgain(t *testing.T) {
	svc := service(corev1.ServiceSpec{ExternalIPs: []string{"203.0.113.9"}, LoadBalancerSourceRanges: []string{"10.0.0.0/8"}}, corev1.LoadBalancerIngress{IP: "203.0.113.1"})
	svc.CreationTimestamp = metav1.Unix(7, 0)
	var s Service
	s.Read(svc)
	first := s.Clone()
	s.Read(service(corev1.ServiceSpec{ClusterIP: "172.30.0.2", ExternalIPs: []string{"203.0.113.8"}}))
	if first.Equal(&s) {
		t.Fatal("Read modified the clone")
	}
	s.Read(svc)
	if !first.Equal(&s) {
		t.Errorf("read again: %+v, want %+v", s, first)
	}
	if n := testing.AllocsPerRun(100, func() { s.Read(svc) }); n != 0 {
		t.Errorf("reading a Service again allocates %v times", n)
	}
	o := slice("http", 80, "10.0.0.1 n1 zone=z1", "10.0.0.2 n2 zone=z2")
	var r Slice
	r.Read(o, false)
	if n := testing.AllocsPerRun(100, func() { r.Read(o, false) }); n != 0 {
		t.Errorf("reading a slice again allocates %v times", n)
	}
}
