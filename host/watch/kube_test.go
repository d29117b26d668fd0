// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

const timeout = time.Minute

func kubeService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns1", Name: "web"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
}

func kubeSlice(addresses ...string) *discoveryv1.EndpointSlice {
	name, port, node := "http", int32(8080), "n1"
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns1", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: &node})
	}
	return s
}

func kubeNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: "z1"}}}
}

// A kubeHarness runs a source and stores its reports.
type kubeHarness struct {
	t       *testing.T
	source  *KubeSource
	tracker *track.Tracker
	cursor  *track.Cursor

	mu      sync.Mutex
	notices []track.Notice
	nodes   []string
}

// newKube runs a source on a fake API server until the test ends.
func newKube(t *testing.T, client *fake.Clientset) *kubeHarness {
	return newKubeFor(t, client, sdk.Description{Name: "test", Features: []sdk.Feature{sdk.FeatureIPv4}})
}

// newKubeFor is like newKube, for a dataplane with the description d.
func newKubeFor(t *testing.T, client *fake.Clientset, d sdk.Description) *kubeHarness {
	h := &kubeHarness{t: t, tracker: track.New(nil)}
	h.tracker.Configure(track.Facts{NodeName: "n1"})
	h.cursor = h.tracker.Cursor(d)
	h.source = Kubernetes(clientOf(client), h.tracker, KubeSettings{NodeName: "n1", Report: h.report, SetNode: h.setNode})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.source.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
	return h
}

func (h *kubeHarness) report(n track.Notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notices = append(h.notices, n)
}

func (h *kubeHarness) setNode(leaving, missing bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nodes = append(h.nodes, fmt.Sprintf("leaving %t missing %t", leaving, missing))
}

func (h *kubeHarness) reasons() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, n := range h.notices {
		all = append(all, n.Reason)
	}
	return all
}

// next returns the next update of the cursor, and acknowledges it.
func (h *kubeHarness) next() sdk.Update {
	h.t.Helper()
	timeout := time.After(timeout)
	for {
		if u, ok := h.cursor.Next(); ok {
			h.cursor.Ack(u.To, nil)
			return u
		}
		select {
		case <-h.cursor.Changed():
		case <-timeout:
			h.t.Fatalf("no update; notices: %v", h.reasons())
		}
	}
}

func (h *kubeHarness) until(what string, done func() bool) {
	h.t.Helper()
	eventually.Succeeds(h.t, what, func() error {
		if !done() {
			return fmt.Errorf("notices: %v", h.reasons())
		}
		return nil
	})
}

func endpoints(u sdk.Update) []string {
	var all []string
	for _, s := range u.Set {
		for _, ep := range s.Cluster {
			all = append(all, ep.Addr.String())
		}
	}
	return all
}

// TestKubeFollows checks the updates from the creation to the deletion of a Service.
func TestKubeFollows(t *testing.T) {
	cidr := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/12", "not a range"}}}
	client := fake.NewClientset(kubeNode(), kubeService(), kubeSlice("10.1.0.1"), cidr)
	h := newKube(t, client)
	if u := h.next(); !u.Full || u.Node == nil || u.Node.Name != "n1" || fmt.Sprint(u.Node.ServiceCIDRs) != "[10.96.0.0/12]" || !slices.Equal(endpoints(u), []string{"10.1.0.1:8080"}) || !u.Set[0].Cluster[0].OnNode {
		t.Fatalf("the first update is %+v", u)
	}

	ctx := t.Context()
	if _, err := client.DiscoveryV1().EndpointSlices("ns1").Update(ctx, kubeSlice("10.1.0.1", "10.1.0.2"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if u := h.next(); u.Full || !slices.Equal(endpoints(u), []string{"10.1.0.1:8080", "10.1.0.2:8080"}) {
		t.Fatalf("after an endpoint was added: %+v", u)
	}

	node := kubeNode()
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
	node.Spec.Taints = []corev1.Taint{{Key: autoscalerTaint}}
	if _, err := client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if u := h.next(); u.Node == nil || len(u.Node.Addrs) != 1 || u.Node.Addrs[0].String() != "192.0.2.7" {
		t.Fatalf("after the node got an address: %+v", u)
	}
	h.until("the autoscaler's taint", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return slices.Equal(h.nodes, []string{"leaving false missing false", "leaving true missing false"})
	})

	if err := client.NetworkingV1().ServiceCIDRs().Delete(ctx, "kubernetes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if u := h.next(); u.Node == nil || len(u.Node.ServiceCIDRs) > 0 {
		t.Fatalf("after the range was deleted: %+v", u)
	}
	if err := client.CoreV1().Services("ns1").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if u := h.next(); len(u.Delete) != 1 || len(u.Set) != 0 {
		t.Fatalf("after the Service was deleted: %+v", u)
	}
}

// TestKubeWaitsForAll checks that there is no update until the slices, which are forbidden at first, are listed: Services
// would be without endpoints.
func TestKubeWaitsForAll(t *testing.T) {
	client := fake.NewClientset(kubeNode(), kubeService(), kubeSlice("10.1.0.1"))
	var mu sync.Mutex
	forbidden := true
	client.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		return forbidden, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "endpointslices"}, "", errors.New("no role"))
	})
	h := newKube(t, client)
	h.until("the other kinds, and a second refusal", func() bool {
		lists := 0
		for _, a := range client.Actions() {
			if a.Matches("list", "endpointslices") {
				lists++
			}
		}
		return lists >= 2 && h.tracker.Counts().Services == 1
	})
	if u, ok := h.cursor.Next(); ok {
		t.Fatalf("an update before the slices were listed: %+v", u)
	}
	if got := h.reasons(); !slices.Equal(got, []string{SourceForbidden}) {
		t.Errorf("notices %v, want one SourceForbidden", got)
	}
	if h.source.Fault() == "" {
		t.Error("no fault, with a kind forbidden")
	}

	mu.Lock()
	forbidden = false
	mu.Unlock()
	if u := h.next(); !u.Full || !slices.Equal(endpoints(u), []string{"10.1.0.1:8080"}) {
		t.Fatalf("the first update is %+v", u)
	}
	h.until("SourceBack", func() bool { return slices.Contains(h.reasons(), SourceBack) && h.source.Fault() == "" })
}

// TestKubeNoNode checks that a host without a Node object serves, with a warning.
func TestKubeNoNode(t *testing.T) {
	h := newKube(t, fake.NewClientset(kubeService()))
	if u := h.next(); !u.Full || len(u.Set) != 1 {
		t.Fatalf("the first update is %+v", u)
	}
	if got := h.reasons(); !slices.Equal(got, []string{NodeUnknown}) {
		t.Errorf("notices %v, want NodeUnknown", got)
	}
	h.until("SetNode(false, true)", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return slices.Equal(h.nodes, []string{"leaving false missing true"})
	})
}

// TestKubeSelectors checks the selectors of the lists.
func TestKubeSelectors(t *testing.T) {
	client := fake.NewClientset(kubeNode())
	h := newKube(t, client)
	h.next()
	asked := make(map[string]string)
	for _, a := range client.Actions() {
		if l, ok := a.(clienttesting.ListAction); ok {
			asked[a.GetVerb()+" "+a.GetResource().Resource] = l.GetListRestrictions().Labels.String() + "|" + l.GetListRestrictions().Fields.String()
		}
	}
	ours := "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name|"
	for what, want := range map[string]string{"list services": ours, "list endpointslices": ours, "list nodes": "|metadata.name=n1"} {
		if asked[what] != want {
			t.Errorf("%s has the selectors %q, want %q", what, asked[what], want)
		}
	}
}

// TestKubeListsNodes checks that all Nodes are listed once, from the server's memory, if a dataplane takes addresses and a
// Service has external ones, that only this Node is watched, and that the list may be forbidden.
func TestKubeListsNodes(t *testing.T) {
	external := kubeService()
	external.Spec.ExternalIPs = []string{"192.0.2.20", "203.0.113.1"}
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.20"}}}}
	for _, c := range []struct {
		name      string
		limits    []sdk.Limit
		service   *corev1.Service
		forbidden bool
		lists     int
		frontends int
	}{
		{"a mode that takes addresses", []sdk.Limit{sdk.LimitTakesAddresses}, external, false, 1, 2},
		{"without external addresses", []sdk.Limit{sdk.LimitTakesAddresses}, kubeService(), false, 0, 1},
		{"another mode", nil, external, false, 0, 3},
		{"forbidden", []sdk.Limit{sdk.LimitTakesAddresses}, external, true, 1, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset(kubeNode(), other, c.service)
			all := func(a clienttesting.Action) bool {
				l, ok := a.(clienttesting.ListActionImpl)
				return ok && l.Resource.Resource == "nodes" && l.GetListRestrictions().Fields.Empty() && l.ListOptions.ResourceVersion == "0"
			}
			client.PrependReactor("list", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
				return c.forbidden && all(a), nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no role"))
			})
			h := newKubeFor(t, client, sdk.Description{Name: "test", Features: []sdk.Feature{sdk.FeatureIPv4}, Limits: c.limits})
			if u := h.next(); len(u.Set) != 1 || len(u.Set[0].Frontends) != c.frontends {
				t.Errorf("the first update is %+v", u)
			}
			lists := 0
			for _, a := range client.Actions() {
				if all(a) {
					lists++
				}
				if w, ok := a.(clienttesting.WatchAction); ok && a.GetResource().Resource == "nodes" && w.GetWatchRestrictions().Fields.Empty() {
					t.Error("all Nodes are watched")
				}
			}
			if lists != c.lists {
				t.Errorf("the Nodes are listed %d times", lists)
			}
			if got := slices.Contains(h.reasons(), SourceForbidden); got != c.forbidden || h.source.Fault() != "" {
				t.Errorf("notices %v, fault %q", h.reasons(), h.source.Fault())
			}
		})
	}
}

// TestKubeMayNotWatch checks that a role that allows list and not watch is reported.
func TestKubeMayNotWatch(t *testing.T) {
	client := fake.NewClientset(kubeNode(), kubeService())
	client.PrependWatchReactor("services", func(clienttesting.Action) (bool, watch.Interface, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", errors.New("no role"))
	})
	h := newKube(t, client)
	h.next()
	h.until("SourceForbidden", func() bool { return slices.Contains(h.reasons(), SourceForbidden) && h.source.Fault() != "" })
}

// TestKubeWatchExpired checks that the slices are listed again when their watch has expired, and that this is no fault.
func TestKubeWatchExpired(t *testing.T) {
	client := fake.NewClientset(kubeNode(), kubeService(), kubeSlice("10.1.0.1"))
	broken := watch.NewFake()
	var once sync.Once
	client.PrependWatchReactor("endpointslices", func(clienttesting.Action) (handled bool, w watch.Interface, err error) {
		once.Do(func() { handled, w = true, broken })
		return handled, w, nil
	})
	h := newKube(t, client)
	if u := h.next(); !slices.Equal(endpoints(u), []string{"10.1.0.1:8080"}) {
		t.Fatalf("the first update is %+v", u)
	}
	if _, err := client.DiscoveryV1().EndpointSlices("ns1").Update(t.Context(), kubeSlice("10.1.0.9"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expired := apierrors.NewResourceExpired("too old resource version").Status()
	broken.Error(&expired)
	if u := h.next(); u.Full || !slices.Equal(endpoints(u), []string{"10.1.0.9:8080"}) {
		t.Fatalf("after the watch expired: %+v", u)
	}
	if got := h.reasons(); len(got) > 0 || h.source.Fault() != "" {
		t.Errorf("notices %v, fault %q", got, h.source.Fault())
	}
}

// TestKubeRangesNotServed checks that a server without the kind, and one that forbids to read it, are no fault.
func TestKubeRangesNotServed(t *testing.T) {
	resource := schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}
	for name, c := range map[string]struct {
		err  error
		want []string // reasons of notices
	}{
		"an older server": {apierrors.NewNotFound(resource, ""), nil},
		"an older role":   {apierrors.NewForbidden(resource, "", errors.New("no role")), []string{SourceForbidden}},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(kubeNode(), kubeService())
			asked := 0
			client.PrependReactor("list", "servicecidrs", func(clienttesting.Action) (bool, runtime.Object, error) {
				asked++
				return true, nil, c.err
			})
			client.PrependWatchReactor("servicecidrs", clienttesting.DefaultWatchReactor(nil, c.err))
			h := newKube(t, client)
			if u := h.next(); len(u.Set) != 1 || len(u.Node.ServiceCIDRs) > 0 {
				t.Errorf("the first update is %+v", u)
			}
			if fault := h.source.Fault(); fault != "" {
				t.Errorf("fault: %s", fault)
			}
			if got := h.reasons(); !slices.Equal(got, c.want) || asked != 1 {
				t.Errorf("%d requests, notices %v, want %v", asked, got, c.want)
			}
		})
	}
}
