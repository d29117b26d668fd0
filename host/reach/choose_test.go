// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/pointsman/pointsman/sdk"
)

var here = ThisNode{Node: "n1", Zone: "z1"}

// endpoint parses "ADDRESS [NODE] [unready|terminating|gone] [zone=Z,Z] [node=N]". Fields and conditions that text does
// not name are not set.
func endpoint(text string) discoveryv1.Endpoint {
	words := strings.Fields(text)
	ep := discoveryv1.Endpoint{Addresses: words[:1]}
	for _, w := range words[1:] {
		key, value, hint := strings.Cut(w, "=")
		switch {
		case hint && ep.Hints == nil:
			ep.Hints = &discoveryv1.EndpointHints{}
			fallthrough
		case hint:
			for _, name := range strings.Split(value, ",") {
				if key == "zone" {
					ep.Hints.ForZones = append(ep.Hints.ForZones, discoveryv1.ForZone{Name: name})
				} else {
					ep.Hints.ForNodes = append(ep.Hints.ForNodes, discoveryv1.ForNode{Name: name})
				}
			}
		case w == "unready":
			ep.Conditions = discoveryv1.EndpointConditions{Ready: new(false)}
		case w == "terminating": // terminating, and still serves
			ep.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
		case w == "gone": // terminating, and does not serve any more
			ep.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(true)}
		case w == "published": // terminating, but of a Service with publishNotReadyAddresses
			ep.Conditions = discoveryv1.EndpointConditions{Ready: new(true), Serving: new(false), Terminating: new(true)}
		default:
			ep.NodeName = &w
		}
	}
	return ep
}

func slice(port string, number int32, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &port, Port: &number}},
	}
	for _, text := range endpoints {
		s.Endpoints = append(s.Endpoints, endpoint(text))
	}
	return s
}

func read(objects ...*discoveryv1.EndpointSlice) []*Slice {
	var records []*Slice
	for _, o := range objects {
		s := &Slice{}
		s.Read(o, false)
		records = append(records, s)
	}
	return records
}

// addrs returns the addresses of a list without the usual port, with "?" after those that may be on this node.
func addrs(list []sdk.Endpoint) string {
	var words []string
	for _, ep := range list {
		word := strings.TrimSuffix(ep.Addr.String(), ":8080")
		if ep.OnNode {
			word += "?"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestChoose(t *testing.T) {
	tests := []struct {
		name           string
		endpoints      []string
		cluster, local string
	}{
		{"no endpoints", nil, "", ""},
		{"a missing condition has the default of the API (A7)",
			[]string{"10.0.0.1 n1", "10.0.0.2 n2"}, "10.0.0.1? 10.0.0.2", "10.0.0.1?"},
		{"an endpoint that is not ready is not used, even if it is the only one (A18)",
			[]string{"10.0.0.1 n1 unready"}, "", ""},
		{"an endpoint without a node may be on this node, but is not local (A6, A22)",
			[]string{"10.0.0.1"}, "10.0.0.1?", ""},
		{"a terminating endpoint is not used while another is ready (A8)",
			[]string{"10.0.0.1 n1 terminating", "10.0.0.2 n2"}, "10.0.0.2", "10.0.0.1?"},
		{"a terminating endpoint is used if none is ready (A8)",
			[]string{"10.0.0.1 n1 terminating", "10.0.0.2 n2 terminating", "10.0.0.3 n2 gone"}, "10.0.0.1? 10.0.0.2", "10.0.0.1?"},
		{"a terminating endpoint of a Service with publishNotReadyAddresses stays ready (A7)",
			[]string{"10.0.0.1 n1 published"}, "10.0.0.1?", "10.0.0.1?"},
		{"a terminating local endpoint is not used while another local one is ready (A8)",
			[]string{"10.0.0.1 n1 terminating", "10.0.0.2 n1"}, "10.0.0.2?", "10.0.0.2?"},

		{"zone hints choose our zone, and the Local list ignores them (A9)",
			[]string{"10.0.0.1 n1 zone=z2", "10.0.0.2 n2 zone=z1", "10.0.0.3 n3 zone=z2,z1"}, "10.0.0.2 10.0.0.3", "10.0.0.1?"},
		{"one missing hint disables hints (A9)",
			[]string{"10.0.0.1 n1 zone=z2", "10.0.0.2 n2 zone=z1", "10.0.0.3 n3"}, "10.0.0.1? 10.0.0.2 10.0.0.3", "10.0.0.1?"},
		{"a missing hint of an endpoint that is not ready does not (A9)",
			[]string{"10.0.0.1 n1 zone=z2", "10.0.0.2 n2 zone=z1", "10.0.0.3 n3 unready"}, "10.0.0.2", "10.0.0.1?"},
		{"no endpoint is hinted for our zone: all are used (A9)",
			[]string{"10.0.0.1 n1 zone=z2", "10.0.0.2 n2 zone=z3"}, "10.0.0.1? 10.0.0.2", "10.0.0.1?"},
		{"node hints take precedence over zone hints (A9)",
			[]string{"10.0.0.1 n1 zone=z1 node=n1", "10.0.0.2 n2 zone=z1 node=n2"}, "10.0.0.1?", "10.0.0.1?"},
		{"zone hints apply if no node hint names this node (A9)",
			[]string{"10.0.0.1 n1 zone=z2 node=n3", "10.0.0.2 n2 zone=z1 node=n2"}, "10.0.0.2", "10.0.0.1?"},
		{"a zone whose name has our zone as a prefix is another zone (A9)",
			[]string{"10.0.0.1 n2 zone=z10", "10.0.0.2 n2 zone=z1"}, "10.0.0.2", ""},
		{"hints do not apply if no endpoint is ready (A8)",
			[]string{"10.0.0.1 n2 terminating zone=z1", "10.0.0.2 n2 terminating zone=z2"}, "10.0.0.1 10.0.0.2", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			records := read(slice("http", 8080, tt.endpoints...))
			port := Port{Name: "http", Protocol: sdk.TCP}
			l := Choose(records, port, sdk.IPv4, here)
			if got := addrs(l.Cluster); got != tt.cluster {
				t.Errorf("cluster: %q, want %q", got, tt.cluster)
			}
			if got := addrs(l.Local); got != tt.local {
				t.Errorf("local: %q, want %q", got, tt.local)
			}
			if l.Serving != nil {
				t.Errorf("Serving is for UDP only, not %v", l.Serving)
			}
			if l6 := Choose(records, port, sdk.IPv6, here); l6.Total != 0 {
				t.Errorf("IPv6 has %d endpoints of an IPv4 slice", l6.Total)
			}
		})
	}
}

// A node without a zone ignores zone hints, and one without a name has no local endpoints.
func TestNodeWithoutNameOrZone(t *testing.T) {
	port := Port{Name: "http", Protocol: sdk.TCP}
	hinted := read(slice("http", 8080, "10.0.0.1 n2 zone=z1", "10.0.0.2 n2 zone=z2"))
	if got := addrs(Choose(hinted, port, sdk.IPv4, ThisNode{Node: "n1"}).Cluster); got != "10.0.0.1 10.0.0.2" {
		t.Errorf("on a node without a zone: %s", got)
	}
	nowhere := read(slice("http", 8080, "10.0.0.1"))
	if l := Choose(nowhere, port, sdk.IPv4, ThisNode{}); len(l.Local) != 0 || LocalReady(nowhere, ThisNode{}) != (Counts{}) {
		t.Errorf("an endpoint without a node is local to a host without a name: %v", l.Local)
	}
}

// Choose merges all slices of a Service, each with its own port number, and uses only
// ports of that name and protocol (A3, A6).
func TestChooseJoinsSlices(t *testing.T) {
	udp := slice("http", 9090, "10.0.0.9")
	udp.Ports[0].Protocol = new(corev1.ProtocolUDP)
	records := read(
		slice("http", 8080, "10.0.0.1"),
		slice("http", 8081, "10.0.0.1", "10.0.0.2"),
		slice("https", 8443, "10.0.0.1"),
		udp,
	)
	l := Choose(records, Port{Name: "http", Protocol: sdk.TCP}, sdk.IPv4, here)
	if got := addrs(l.Cluster); got != "10.0.0.1? 10.0.0.1:8081? 10.0.0.2:8081?" {
		t.Errorf("joined: %s", got)
	}
}

func TestDuplicates(t *testing.T) {
	tests := []struct {
		name        string
		one, other  string
		want, local string
	}{
		{"the local endpoint is preferred (A6)", "10.0.0.1 n2", "10.0.0.1 n1", "10.0.0.1?", "10.0.0.1?"},
		{"of two endpoints on other nodes the ready one is preferred", "10.0.0.1 n2 unready", "10.0.0.1 n2", "10.0.0.1", ""},
		{"an endpoint on another node has the address of a terminating local one", "10.0.0.1 n2", "10.0.0.1 n1 terminating", "10.0.0.1", ""},
		{"a local endpoint has the address of a terminating one on another node", "10.0.0.1 n2 terminating", "10.0.0.1 n1", "10.0.0.1?", "10.0.0.1?"},
		{"of two terminating endpoints the local one is preferred", "10.0.0.1 n2 terminating", "10.0.0.1 n1 terminating", "10.0.0.1?", "10.0.0.1?"},
		{"the local endpoint is preferred even if it is not ready", "10.0.0.1 n2", "10.0.0.1 n1 unready", "", ""},
	}
	for _, tt := range tests {
		for _, order := range [][]string{{tt.one, tt.other}, {tt.other, tt.one}} {
			records := read(slice("http", 8080, order[0]), slice("http", 8080, order[1]))
			l := Choose(records, Port{Name: "http", Protocol: sdk.TCP}, sdk.IPv4, here)
			if addrs(l.Cluster) != tt.want || addrs(l.Local) != tt.local || l.Total != 1 {
				t.Errorf("%s: %v gives cluster %q local %q", tt.name, order, addrs(l.Cluster), addrs(l.Local))
			}
		}
	}
}

// Serving are the addresses that keep their UDP flows but get no new ones, regardless of
// policy, topology and readiness (contract line 9).
func TestServing(t *testing.T) {
	udp := slice("dns", 8080,
		"10.0.0.1 n1 zone=z2", // hinted for another zone, but in the Local list
		"10.0.0.2 n2 zone=z1",
		"10.0.0.3 n2 zone=z2", // hinted for another zone
		"10.0.0.4 n2 terminating zone=z1",
		"10.0.0.5 n2 gone zone=z1",
	)
	udp.Ports[0].Protocol = new(corev1.ProtocolUDP)
	unready := endpoint("10.0.0.6 n2 zone=z1")
	unready.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true)}
	udp.Endpoints = append(udp.Endpoints, unready)
	l := Choose(read(udp), Port{Name: "dns", Protocol: sdk.UDP}, sdk.IPv4, here)
	if got := fmt.Sprint(l.Serving); got != "[10.0.0.3 10.0.0.4 10.0.0.6]" {
		t.Errorf("serving %s beside cluster %v and local %v", got, l.Cluster, l.Local)
	}
	// Another port of an address may be in a list.
	udp.Endpoints = udp.Endpoints[3:4]
	other := slice("dns", 8081, "10.0.0.4 n2")
	other.Ports[0].Protocol = new(corev1.ProtocolUDP)
	l = Choose(read(udp, other), Port{Name: "dns", Protocol: sdk.UDP}, sdk.IPv4, here)
	if got := fmt.Sprint(l.Serving); got != "[10.0.0.4]" || len(l.Cluster) != 1 {
		t.Errorf("serving %s beside cluster %v", got, l.Cluster)
	}
}

// LocalReady counts each address once. An endpoint of a slice without ports does not serve (A24): the EndpointSlice
// controller writes such slices for pods without a port of the name that the Service has.
func TestLocalReady(t *testing.T) {
	none, unnumbered := slice("http", 8080, "10.0.0.6 n1"), slice("http", 8080, "10.0.0.7 n1")
	none.Ports, unnumbered.Ports[0].Port = nil, nil
	six := slice("https", 8443, "fd00::1 n1", "fd00::2 n2")
	six.AddressType = discoveryv1.AddressTypeIPv6
	records := read(none, unnumbered, six,
		slice("http", 8080, "10.0.0.1 n1", "10.0.0.2 n1 terminating", "10.0.0.3 n2", "10.0.0.4"),
		slice("https", 8443, "10.0.0.1 n1", "10.0.0.5 n1 published"),
	)
	if n := LocalReady(records, here); n.Of(sdk.IPv4) != 2 || n.Of(sdk.IPv6) != 1 {
		t.Errorf("%+v ready here, want 10.0.0.1 and 10.0.0.5, and fd00::1", n)
	}
}

func TestRefusedSlices(t *testing.T) {
	number, zero := int32(80), int32(0)
	tests := []struct {
		name  string
		slice discoveryv1.EndpointSlice
		want  string
	}{
		{"names instead of addresses", discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeFQDN}, `address type "FQDN" is not served`},
		{"port 0", discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &zero}}}, "has no valid number"},
		{"no port", discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{}}}, "has no valid number"},
		{"a protocol from later", discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &number, Protocol: new(corev1.Protocol("QUIC"))}}}, `unknown protocol "QUIC"`},
		{"loopback (CVE-2021-25737)", *slice("http", 80, "127.0.0.1", "127.0.0.2"), "endpoint 127.0.0.1 is loopback; it is not used, nor are 1 other endpoints"},
		{"link-local (CVE-2021-25737)", *slice("http", 80, "169.254.169.254"), "is link-local"},
		{"multicast", *slice("http", 80, "224.0.0.1"), "is multicast"},
		{"broadcast", *slice("http", 80, "255.255.255.255"), "endpoint 255.255.255.255 is the broadcast address; it is not used"},
		{"unspecified", *slice("http", 80, "0.0.0.0"), "is unspecified"},
		{"of the other family", *slice("http", 80, "fd00::1"), "is of the other IP family"},
		{"IPv4 in IPv6", *slice("http", 80, "::ffff:127.0.0.1"), "written as IPv6"},
		{"with a zone", *slice("http", 80, "fd00::1%eth0"), "has a zone"},
		{"no address", *slice("http", 80, "localhost"), "is no IP address"},
		{"a terminal's escape codes", *slice("http", 80, "fd00::1%\x1b[2J"), `endpoint "fd00::1%\x1b[2J" is no IP address`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			records := read(&tt.slice)
			if len(records[0].Problems) != 1 || !strings.Contains(records[0].Problems[0].Message, tt.want) {
				t.Errorf("problems %q, want one with %q", records[0].Problems, tt.want)
			}
			if len(records[0].Endpoints) > 0 {
				t.Errorf("%v is used", records[0].Endpoints)
			}
		})
	}
}

// Read uses only the first address of an endpoint (A6), in which octets with leading zeros are decimal, loopback
// addresses only if the source describes one machine, and no place that is not the name of a Node or zone.
func TestReadEndpoints(t *testing.T) {
	o := slice("http", 80, "010.000.0.08", "127.0.0.1", "169.254.169.254")
	o.Endpoints[0].Addresses = append(o.Endpoints[0].Addresses, "10.0.0.2")
	o.Endpoints[0].NodeName, o.Endpoints[0].Zone = new("n1\x1b[2J"), new("z1")
	o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{})
	var s Slice
	s.Read(o, true)
	if len(s.Endpoints) != 2 || s.Endpoints[0].Addr != netip.MustParseAddr("10.0.0.8") || s.Endpoints[0].Place.Value() != (Place{}) || s.Endpoints[1].Addr != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("endpoints %v", s.Endpoints)
	}
}

// Choose returns ten thousand endpoints in canonical order, whatever the order of the slices.
func TestChooseIsCanonical(t *testing.T) {
	var objects []*discoveryv1.EndpointSlice
	for i := range 100 {
		var endpoints []string
		for j := range 100 {
			n := (i*100 + j) * 7919 % 10000
			endpoints = append(endpoints, fmt.Sprintf("10.1.%d.%d n%d", n/100, n%100, n%3))
		}
		objects = append(objects, slice("http", 8080, endpoints...))
	}
	l := Choose(read(objects...), Port{Name: "http", Protocol: sdk.TCP}, sdk.IPv4, here)
	s := sdk.Service{Cluster: slices.Clone(l.Cluster), Local: slices.Clone(l.Local)}
	s.Normalize()
	if len(l.Cluster) != 10000 || !slices.Equal(s.Cluster, l.Cluster) || !slices.Equal(s.Local, l.Local) {
		t.Errorf("%d endpoints, not in canonical order", len(l.Cluster))
	}
}
