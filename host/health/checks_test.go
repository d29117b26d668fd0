// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// service returns ns1/name, with a healthCheckNodePort unless it is zero.
func service(name string, health int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns1", Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1", ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
			HealthCheckNodePort: health, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
}

func slice(name string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns1", Name: name + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: new(int32(80))}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: new("n1")})
	}
	return s
}

// free returns a port on which nothing listens.
func free(t *testing.T) int32 {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return int32(l.Addr().(*net.TCPAddr).Port)
}

// fetch returns the response of a server: "CODE HEADER BODY".
func fetch(url string) string {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	if err != nil {
		return "no answer"
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s %s", r.StatusCode, r.Header.Get("X-Load-Balancing-Endpoint-Weight"), body)
}

// TestChecks follows one healthCheckNodePort.
func TestChecks(t *testing.T) {
	b := newHarness(func(s *Settings) { s.Now = nil })
	b.tracker.Configure(track.Facts{NodeName: "n1", NodePorts: prefixes("0.0.0.0/0")})
	b.run(t)
	port := free(t)
	url := fmt.Sprintf("http://127.0.0.1:%d/whatever", port)
	get := func() string { return fetch(url) }
	body := func(n int, healthy bool) string { // kube-proxy's, byte for byte
		return fmt.Sprintf("{\n\t\"service\": {\n\t\t\"namespace\": \"ns1\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": %v\n}", n, healthy)
	}

	b.tracker.SetService(service("web", port))
	until(t, "nobody here", get, "503 0 "+body(0, true))
	b.tracker.SetSlice(slice("web", "10.1.0.1", "10.1.0.2"))
	until(t, "two here", get, "200 2 "+body(2, true))
	six := slice("web", "fd00::1")
	six.Name, six.AddressType = "web-6", discoveryv1.AddressTypeIPv6
	b.tracker.SetSlice(six)
	six = six.DeepCopy()
	six.Name, six.Endpoints = "web-7", append(six.Endpoints, discoveryv1.Endpoint{Addresses: []string{"fd00::2"}, NodeName: new("n2")})
	b.tracker.SetSlice(six)
	b.tracker.SetSlice(slice("web", "10.1.0.1", "10.1.0.2", "10.1.0.3"))
	until(t, "who asks by IPv4 has no use for IPv6", get, "200 3 "+body(3, true))
	b.tracker.SetSlice(slice("web", "10.1.0.1", "10.1.0.2"))
	until(t, "one less", get, "200 2 "+body(2, true))
	b.SetNode(true, false)
	until(t, "the node's own fate does not count", get, "200 2 "+body(2, true))

	moved := free(t)
	b.tracker.SetService(service("web", moved))
	until(t, "the old port", get, "no answer")
	url = fmt.Sprintf("http://127.0.0.1:%d/", moved)
	until(t, "the new port", get, "200 2 "+body(2, true))
	b.tracker.DeleteService("ns1", "web")
	until(t, "a Service that is gone", get, "no answer")
}

// TestCheckOfALateNode: a node that is late fails the check.
func TestCheckOfALateNode(t *testing.T) {
	b := newHarness()
	b.tracker.Configure(track.Facts{NodeName: "n1", NodePorts: prefixes("127.0.0.0/8")})
	port := free(t)
	b.tracker.SetService(service("web", port))
	b.tracker.SetSlice(slice("web", "10.1.0.1"))
	b.Applied(Applied{Families: []sdk.Family{sdk.IPv4}, Full: true})
	b.bind(b.checkBindings())
	defer b.bind(nil)
	b.setDataplane(func(p *Dataplane) { p.Since = b.now })
	b.pass(70 * time.Second)
	if got := fetch(fmt.Sprintf("http://127.0.0.1:%d/", port)); !strings.HasPrefix(got, "503 1 ") {
		t.Errorf("late: %s", got)
	}
}

// TestCheckConflict: another process has the port for a while. Then the check is served only at addresses that accept
// node ports, and in the families of its Service.
func TestCheckConflict(t *testing.T) {
	b := newHarness()
	b.tracker.Configure(track.Facts{NodeName: "n1", NodePorts: prefixes("127.0.0.0/31", "::1/128")})
	port := free(t)
	other, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	b.tracker.SetService(service("web", port))
	b.tracker.SetSlice(slice("web", "10.1.0.1"))
	b.bind(b.checkBindings())
	if got := series(scrape(t, b)["pointsman_health_checks"]); got != "state=failed 1; state=open 0" || !slices.Equal(b.reasons(), []string{CheckNotServed}) {
		t.Errorf("%s, reported %v", got, b.reasons())
	}
	if got, want := fmt.Sprint(b.Unbound()), fmt.Sprintf("[healthCheckNodePort %d of ns1/web: listen tcp4 127.0.0.1:%[1]d: bind: address already in use]", port); got != want {
		t.Errorf("unbound: %s, want %s", got, want)
	}
	if n := b.notices[0]; n.Object != "ns1/web" || !strings.Contains(n.Message, "address already in use") {
		t.Errorf("reported %+v", n)
	}
	other.Close()
	defer b.bind(nil)
	for _, c := range []struct {
		checks   []binding
		at, want string
	}{
		{b.checkBindings(), "127.0.0.1", "200 1"},
		{b.checkBindings(), "127.0.0.2", "no answer"},
		{b.checkBindings(), "[::1]", "no answer"},
		{nil, "127.0.0.1", "no answer"},
		{b.checkBindings(), "127.0.0.1", "200 1"},
	} {
		b.bind(c.checks)
		if got := fetch(fmt.Sprintf("http://%s:%d/", c.at, port)); !strings.HasPrefix(got, c.want) {
			t.Errorf("%d checks: at %s %s, want %s", len(c.checks), c.at, got, c.want)
		}
		if got := b.Unbound(); len(got) > 0 {
			t.Errorf("unbound: %v", got)
		}
	}
}

// TestCheckAtEveryAddress: a check is served at no address if a program has its port at one of them.
func TestCheckAtEveryAddress(t *testing.T) {
	b := newHarness()
	b.tracker.Configure(track.Facts{NodeName: "n1", NodePorts: prefixes("127.0.0.0/8", "::1/128")})
	port := free(t)
	other, err := net.Listen("tcp6", fmt.Sprintf("[::1]:%d", port))
	if err != nil {
		t.Skipf("needs IPv6: %v", err)
	}
	defer other.Close()
	svc := service("web", port)
	svc.Spec.ClusterIPs, svc.Spec.IPFamilies = []string{"10.96.0.1", "fd00::1"}, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	b.tracker.SetService(svc)
	defer b.bind(nil)
	for _, want := range []string{"no answer", "503 0"} {
		b.bind(b.checkBindings())
		for _, at := range []string{"127.0.0.1", "[::1]"} {
			if got := fetch(fmt.Sprintf("http://%s:%d/", at, port)); !strings.HasPrefix(got, want) {
				t.Errorf("at %s %s, want %s", at, got, want)
			}
		}
		other.Close()
	}
}

// TestAddressesOfChecks: the addresses of the machine are read once for all checks, and nothing is closed while they
// cannot be read.
func TestAddressesOfChecks(t *testing.T) {
	b := newHarness()
	b.tracker.Configure(track.Facts{NodeName: "n1", NodePorts: prefixes("127.0.0.0/8")})
	b.checkBindings()
	read, failure := 0, error(nil)
	b.machine = func() ([]netip.Addr, error) {
		read++
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.5")}, failure
	}
	b.checkBindings()
	if read > 0 {
		t.Errorf("read %d times without a check", read)
	}
	for i := range 3 {
		svc := service(fmt.Sprint("web", i), 31000+int32(i))
		svc.Spec.ClusterIP = fmt.Sprintf("10.96.0.%d", i+1)
		b.tracker.SetService(svc)
	}
	for i, failure2 := range []error{nil, errors.New("too many open files")} {
		failure = failure2
		if n := len(b.checkBindings()); n != 3 || read != i+1 {
			t.Errorf("%v: %d bindings of 3 checks, after %d reads", failure, n, read)
		}
	}
}

// TestNodePortAddrs checks the addresses at which checks are served.
func TestNodePortAddrs(t *testing.T) {
	var machine []netip.Addr
	for _, text := range strings.Fields("127.0.0.1 ::1 10.0.0.5 10.0.1.5 fd00::5 fe80::1") {
		machine = append(machine, netip.MustParseAddr(text))
	}
	for _, test := range []struct {
		ranges []netip.Prefix
		want   string
	}{
		{nil, "[]"},
		{prefixes("0.0.0.0/0", "::/0"), "[0.0.0.0 ::]"},
		{prefixes("0.0.0.0/0"), "[0.0.0.0]"},
		{prefixes("10.0.0.0/24"), "[10.0.0.5]"},
		{prefixes("10.0.0.0/24", "::/0"), "[:: 10.0.0.5]"},
		{prefixes("fe80::/10", "fd00::/8"), "[fd00::5]"},
		{prefixes("192.0.2.0/24"), "[]"},
	} {
		if got := fmt.Sprint(nodePortAddrs(sdk.Node{NodePorts: test.ranges}, machine)); got != test.want {
			t.Errorf("%v: %s, want %s", test.ranges, got, test.want)
		}
	}
}

// TestCheckAtAddressOfProbes: a check is not served at the address of a setting, which answers something else.
func TestCheckAtAddressOfProbes(t *testing.T) {
	b := newHarness()
	b.tracker.Configure(track.Facts{NodeName: "n1", NodePorts: prefixes("0.0.0.0/0")})
	port := free(t)
	b.tracker.SetService(service("web", port))
	own := binding{addr: fmt.Sprintf("0.0.0.0:%d", port), what: "healthzBindAddress", handler: b.probes()}
	defer b.bind(nil)
	for range 2 {
		b.bind(append([]binding{own}, b.checkBindings()...))
		if got := fmt.Sprint(b.Unbound()); !strings.Contains(got, "ns1/web: listen") {
			t.Errorf("unbound: %s", got)
		}
		if got := fetch("http://" + own.addr + "/livez"); !strings.HasPrefix(got, "200") {
			t.Errorf("the probes answer %s", got)
		}
	}
}
