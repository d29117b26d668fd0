// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/pointsman/pointsman/host/track"
)

// TestKubeTrims sees objects as they come out of a reflector: without what the host does not read.
func TestKubeTrims(t *testing.T) {
	svc := kubeService()
	svc.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	svc.Spec.Selector = map[string]string{"app": "web"}
	client := fake.NewClientset()
	if err := client.Tracker().Add(svc); err != nil {
		t.Fatal(err)
	}
	k := Kubernetes(clientOf(client), track.New(nil), KubeSettings{NodeName: "n1", Eligible: func(Eligibility) {}, Report: func(track.Notice) {}})
	seen := make(chan *corev1.Service, 1)
	h := newStore("Services", func(o any) { seen <- o.(*corev1.Service) }, func(track.Key) {})
	k.first = make(chan struct{}, 1)
	followKind(k, h, &corev1.Service{}, client.CoreV1().Services(metav1.NamespaceAll), metav1.ListOptions{})
	var ended sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); ended.Wait() }()
	ended.Go(func() { k.kinds[len(k.kinds)-1].RunWithContext(ctx) }) // until ctx ends
	select {
	case got := <-seen:
		if got.Name != "web" || got.ManagedFields != nil || got.Spec.Selector != nil {
			t.Errorf("it came in as %+v", got)
		}
	case <-time.After(timeout):
		t.Fatal("nothing came in")
	}
}

// TestTrim keeps of each kind what is read, and nothing of what makes objects large.
func TestTrim(t *testing.T) {
	const at = corev1.EndpointsLastChangeTriggerTime
	meta := metav1.ObjectMeta{
		Name: "a", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}, Finalizers: []string{"f"}, OwnerReferences: []metav1.OwnerReference{{Name: "o"}},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}, Annotations: map[string]string{"long": "text", at: "then"},
	}
	kept := metav1.ObjectMeta{Name: "a", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}, Annotations: map[string]string{at: "then"}}
	host, spec, addresses := "h", corev1.NodeSpec{PodCIDRs: []string{"10.1.0.0/24"}}, []corev1.NodeAddress{{Address: "192.0.2.7"}}
	ingress := corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.9"}}}
	for _, test := range []struct{ object, want any }{
		{
			&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", Selector: map[string]string{"a": "b"}}, Status: corev1.ServiceStatus{LoadBalancer: ingress, Conditions: []metav1.Condition{{Type: "t"}}}},
			&corev1.Service{ObjectMeta: kept, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1"}, Status: corev1.ServiceStatus{LoadBalancer: ingress}},
		},
		{
			&corev1.Node{ObjectMeta: meta, Spec: spec, Status: corev1.NodeStatus{Addresses: addresses, Images: []corev1.ContainerImage{{SizeBytes: 1}}}},
			&corev1.Node{ObjectMeta: kept, Spec: spec, Status: corev1.NodeStatus{Addresses: addresses}},
		},
		{
			&discoveryv1.EndpointSlice{ObjectMeta: meta, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}, NodeName: &host, Hostname: &host, TargetRef: &corev1.ObjectReference{Name: "pod"}}}},
			&discoveryv1.EndpointSlice{ObjectMeta: kept, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}, NodeName: &host}}},
		},
	} {
		object := test.object.(runtime.Object).DeepCopyObject() // they share what they are made of
		if got, err := trim(object); err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%T is left with\n%+v, want\n%+v (%v)", test.object, got, test.want, err)
		}
	}
}

// TestStoreReplace relists: what is new comes before what is gone.
func TestStoreReplace(t *testing.T) {
	var story []string
	h := newStore("Services",
		func(o any) { story = append(story, "set "+o.(*corev1.Service).Name) },
		func(k track.Key) { story = append(story, "gone "+k.String()) })
	first := 0
	h.first = func() { first++ }
	named := func(name string) any {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns1", Name: name}}
	}
	steps := []error{
		h.Replace([]any{named("a"), named("b")}, "1"), h.Delete(named("a")), h.Add(named("c")),
		h.Replace([]any{named("c"), named("d")}, "9"), h.Resync(), h.Replace(nil, "10"),
	}
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	slices.Sort(story[7:]) // two that are gone at once, in any order
	want := []string{"set a", "set b", "gone ns1/a", "set c", "set c", "set d", "gone ns1/b", "gone ns1/c", "gone ns1/d"}
	if !slices.Equal(story, want) || first != 1 {
		t.Errorf("told %v (complete %d times)\nwant %v", story, first, want)
	}
}
