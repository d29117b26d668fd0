// SPDX-License-Identifier: Apache-2.0

package services

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// pods of a node in these tests, and what else is there.
const (
	podOfNode = "10.244.1.7"
	podOfElse = "10.244.2.7"
	client    = "198.18.0.1"
)

// clusterService returns a Service of type ClusterIP without endpoints.
func clusterService(name string, addr netip.Addr, protocol corev1.Protocol) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	svc.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: addr.String(), ClusterIPs: []string{addr.String()},
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{{Protocol: protocol, Port: 80}},
	}
	return svc
}

// A fake is a dataplane without a process. Without a cursor it has no session either.
type fake struct{ cursor *track.Cursor }

func (fake) Name() string { return "m" }

func (fake) Process() (*wire.Remote, error) { return nil, errors.New("no process is running") }

func (f fake) Progress() track.CursorStatus { return f.cursor.Status() }

func (f fake) Standing(port sdk.Name) track.Standing {
	if f.cursor == nil {
		return track.Standing{Pending: true}
	}
	return f.cursor.Standing(port)
}

// confirmed returns a fake that has confirmed the whole state.
func confirmed(tracker *track.Tracker) fake {
	f := fake{tracker.Cursor(sdk.Description{Name: "m", Features: []sdk.Feature{sdk.FeatureIPv4}})}
	if u, ok := f.cursor.Next(); ok {
		f.cursor.Ack(u.To, nil)
	}
	return f
}

// queries returns the Queries of a node on which a fake serves.
func queries(tracker *track.Tracker) Queries {
	f := confirmed(tracker)
	return Queries{Tracker: tracker, Serving: func() Dataplane { return f }, Swap: func() *admin.Swap { return nil }}
}

// explained returns the Queries of a node that recognizes pods by detector. Service web has two endpoints, one of them on
// this node; near has the Local policy for callers from outside, and no endpoint on this node; none has no endpoint.
func explained(t *testing.T, detector sdk.Pods) Queries {
	t.Helper()
	tracker := track.New(nil)
	tracker.Configure(track.Facts{NodeName: "one", Pods: detector})
	tracker.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.10"}},
	}})
	service := func(name, addr string, with func(*corev1.ServiceSpec)) {
		svc := clusterService(name, netip.MustParseAddr(addr), corev1.ProtocolTCP)
		if with != nil {
			with(&svc.Spec)
		}
		tracker.SetService(svc)
	}
	slice := func(name string, endpoints ...discoveryv1.Endpoint) {
		port := int32(8080)
		tracker.SetSlice(&discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: name + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints, Ports: []discoveryv1.EndpointPort{{Name: new(string), Port: &port}},
		})
	}
	at := func(node, addr string) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{addr}, NodeName: &node}
	}
	service("web", "172.30.0.1", func(s *corev1.ServiceSpec) {
		s.SessionAffinity = corev1.ServiceAffinityClientIP
	})
	slice("web", at("one", "10.244.1.1"), at("two", "10.244.2.1"))
	service("near", "172.30.0.2", func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalIPs = corev1.ServiceTypeNodePort, []string{"203.0.113.2"}
		s.ExternalTrafficPolicy, s.Ports[0].NodePort = corev1.ServiceExternalTrafficPolicyLocal, 30002
	})
	slice("near", at("two", "10.244.2.2"))
	service("none", "172.30.0.3", nil)
	tracker.Synced()
	return queries(tracker)
}

// TestExplain checks the verdict for a packet, which is that of the contract, and the remedies. The dataplane has no
// process here; the answer says so, and has everything else.
func TestExplain(t *testing.T) {
	t.Parallel()
	byRange := sdk.Pods{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}}
	byBridge := sdk.Pods{Bridge: "cni0"}
	for _, c := range []struct {
		name     string
		pods     sdk.Pods
		from, to string
		verdict  string
		to1      string // endpoints, in order of address, with * after those that see the node as caller
		unused   string
		says     []string // each must occur in a step or a remedy
	}{
		{"a pod of this node", byRange, podOfNode, "172.30.0.1:80", "forward", "10.244.1.1:8080 10.244.2.1:8080", "",
			[]string{"a pod of this node: 10.244.1.7 is in 10.244.1.0/24", "keeps its endpoint"}},
		{"a pod of another node", byRange, podOfElse, "172.30.0.1:80", "forward", "10.244.1.1:8080* 10.244.2.1:8080*", "",
			[]string{"another machine: 10.244.2.7 is in none of 10.244.1.0/24"}},
		{"an endpoint that calls its own Service", byRange, "10.244.1.1", "172.30.0.1:80", "forward", "10.244.1.1:8080* 10.244.2.1:8080", "", nil},
		{"a process of this node", byRange, "node", "172.30.0.1:80", "forward", "10.244.1.1:8080* 10.244.2.1:8080*", "",
			[]string{"a process of this node, with the address 192.0.2.10"}},
		{"no endpoint", byRange, podOfNode, "172.30.0.3:80", "reject", "", "", nil},
		{"no local endpoint", byRange, client, "203.0.113.2:80", "drop", "", "10.244.2.2:8080", []string{"none of the 1 is on this node"}},
		{"no local endpoint, and a pod calls", byRange, podOfNode, "203.0.113.2:80", "forward", "10.244.2.2:8080", "", nil},
		{"another port", byRange, podOfNode, "172.30.0.1:81", "pass", "", "", []string{"which is not reached at port 81/tcp"}},
		{"a node port on loopback", byRange, "node", "127.0.0.1:30002", "cannot tell", "", "", []string{"localhostNodePorts"}},
		{"pods are recognized by their bridge", byBridge, podOfNode, "172.30.0.1:80", "cannot tell", "", "", []string{"ask for pod:10.244.1.7", "outside:10.244.1.7"}},
		{"the question says that it is a pod", byBridge, "pod:" + podOfNode, "172.30.0.1:80", "forward", "10.244.1.1:8080 10.244.2.1:8080", "", []string{"as you say"}},
		{"the question says that it is another machine", byBridge, "outside:" + podOfNode, "172.30.0.1:80", "forward", "10.244.1.1:8080* 10.244.2.1:8080*", "", []string{"as you say"}},
	} {
		q, err := admin.ParseQuestion(c.from, c.to)
		if err != nil {
			t.Fatal(err)
		}
		x, err := explained(t, c.pods).Explain(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if x.Verdict != c.verdict || shares(x) != c.to1 {
			t.Errorf("%s: %s to %s, want %s to %s", c.name, x.Verdict, shares(x), c.verdict, c.to1)
		}
		var unused []string
		for _, u := range x.Unused {
			unused = append(unused, u.Address)
		}
		if got := strings.Join(unused, " "); got != c.unused {
			t.Errorf("%s: %q are not used, want %q", c.name, got, c.unused)
		}
		said := slices.Clone(x.Remedies)
		for _, s := range x.Steps {
			said = append(said, s.Answer)
		}
		for _, want := range c.says {
			if !strings.Contains(strings.Join(said, "\n"), want) {
				t.Errorf("%s: no step or remedy contains %q:\n%s", c.name, want, strings.Join(said, "\n"))
			}
		}
		if x.Kernel != nil || x.Untraced == "" {
			t.Errorf("%s: without a process the answer about the kernel is %+v, %q", c.name, x.Kernel, x.Untraced)
		}
	}
}

// shares returns the endpoints of an explanation as text.
func shares(x admin.Explanation) string {
	var all []string
	for _, s := range x.Endpoints {
		word := s.Address
		if s.Masquerade {
			word += "*"
		}
		all = append(all, word)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestBeforeTheSource: before the source has answered, there is no verdict.
func TestBeforeTheSource(t *testing.T) {
	t.Parallel()
	tracker := track.New(nil)
	queried := queries(tracker)
	q, _ := admin.ParseQuestion("node", "172.30.0.1:80")
	x, err := queried.Explain(t.Context(), q)
	if err != nil || x.Verdict != admin.VerdictCannotTell || len(x.Steps) != 1 || !strings.Contains(x.Steps[0].Answer, "has not answered yet") {
		t.Errorf("%+v, %v", x, err)
	}
	if _, err := queried.Service(t.Context(), "shop", "web"); err == nil || !strings.Contains(err.Error(), "has not answered yet") {
		t.Errorf("a Service: %v", err)
	}
	if _, unknown := queried.Services(); !strings.Contains(unknown, "has not answered yet") {
		t.Errorf("the list of Services is complete, with unknown %q", unknown)
	}
	if queried.Unanswered() == "" || explained(t, sdk.Pods{}).Unanswered() != "" {
		t.Error("Unanswered does not depend on the source")
	}
}

// TestKernelDiffers checks how differs describes rules that contradict the verdict.
func TestKernelDiffers(t *testing.T) {
	t.Parallel()
	to := netip.MustParseAddrPort("172.30.0.1:80")
	way := func(v sdk.Verdict, addr string) sdk.Way {
		return sdk.Way{Verdict: v, To: netip.MustParseAddrPort(addr)}
	}
	then := way(sdk.Forward, to.String())
	then.Then = "IPVS"
	for _, c := range []struct {
		name, verdict string
		way           sdk.Way
		want          string
	}{
		{"an endpoint, as expected", "forward", way(sdk.Forward, "10.0.0.1:80"), ""},
		{"an address that is not an endpoint", "forward", way(sdk.Forward, "10.9.9.9:80"), "10.9.9.9:80, which is not one of its endpoints"},
		{"not translated", "forward", way(sdk.Forward, to.String()), "no rule translates it"},
		{"not translated, but should be rejected", "reject", way(sdk.Forward, to.String()), "no rule translates it"},
		{"dropped", "forward", way(sdk.Drop, "10.0.0.1:80"), "the kernel's verdict is drop, not forward"},
		{"dropped, but should be rejected", "reject", way(sdk.Drop, to.String()), "the kernel's verdict is drop, not reject"},
		{"rejected, as expected", "reject", way(sdk.Reject, to.String()), ""},
		{"not for a Service", "pass", way(sdk.Forward, to.String()), ""},
		{"not for a Service, but translated", "pass", way(sdk.Forward, "10.9.9.9:80"), "10.9.9.9:80, which is not one"},
		{"not for a Service, but dropped", "pass", way(sdk.Drop, to.String()), "the kernel's verdict is drop, not pass"},
		{"something else decides", "forward", then, ""},
		{"the verdict is not known", "cannot tell", way(sdk.Drop, to.String()), ""},
	} {
		x := explanation{Explanation: admin.Explanation{Question: admin.Question{To: to}, Verdict: c.verdict, Endpoints: []admin.Share{{Address: "10.0.0.1:80"}}}}
		if got := x.differs(c.way); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestWalked: a way that differs is listed first, and a remedy names the rule that stops it.
func TestWalked(t *testing.T) {
	t.Parallel()
	x := explanation{Explanation: admin.Explanation{Verdict: "forward", Endpoints: []admin.Share{{Address: "10.0.0.1:80"}}}}
	good := sdk.Way{Verdict: sdk.Forward, To: netip.MustParseAddrPort("10.0.0.1:80")}
	bad := sdk.Way{Verdict: sdk.Drop, To: netip.MustParseAddrPort("10.0.0.2:80"), Steps: []string{"filter/INPUT/1", "filter/WALL/3: -j DROP"}}
	x.addTrace(sdk.Traced{Ways: []sdk.Way{good, bad, bad}, Notes: []string{"a program of XDP"}})
	if k := x.Kernel; len(k.Ways) != 3 || k.Ways[0].Verdict != "drop" || k.Differs != "the kernel's verdict is drop, not forward" || len(k.Notes) != 1 {
		t.Errorf("%+v", k)
	}
	if len(x.Remedies) != 1 || !strings.Contains(x.Remedies[0], "filter/WALL/3: -j DROP; if Pointsman did not write that") {
		t.Errorf("%q", x.Remedies)
	}
}

// TestTried checks the texts for results of connections to endpoints.
func TestTried(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	defer l.Close()
	x := explanation{Explanation: admin.Explanation{Endpoints: []admin.Share{{Address: l.Addr().String()}, {Address: gone.Addr().String()}}}}
	x.connect(t.Context())
	if x.Endpoints[0].Tried != "connected" || x.Endpoints[1].Tried != "refused" {
		t.Errorf("%+v", x.Endpoints)
	}
	_, late := (&net.Dialer{Deadline: time.Now()}).Dial("tcp", l.Addr().String())
	for want, err := range map[string]error{"timed out": late, "no route": &net.OpError{Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}, "odd": errors.New("odd")} {
		if got := connectResult(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
