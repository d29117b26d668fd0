// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/pointsman/pointsman/host/track"
)

// TestPodsOfKubernetes asks an API server, and keeps namespaces apart.
func TestPodsOfKubernetes(t *testing.T) {
	slice := func(namespace string, refs ...*corev1.ObjectReference) *discoveryv1.EndpointSlice {
		s := kubeSlice()
		s.Namespace = namespace
		for i, ref := range refs {
			node := "n1"
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.0.%d", i), "no address"}, NodeName: &node, TargetRef: ref})
		}
		return s
	}
	client := fake.NewClientset(
		slice("ns1", &corev1.ObjectReference{Kind: "Pod", Name: "web-0"}, nil, &corev1.ObjectReference{Kind: "VM", Name: "vm-0"}),
		slice("ns2", &corev1.ObjectReference{Kind: "Pod", Name: "web-9"}),
	)
	k := Kubernetes(clientOf(client), track.New(nil), KubeSettings{NodeName: "n1", SetNode: func(bool, bool) {}})
	pods, err := k.Pods(t.Context(), "ns1")
	if got := fmt.Sprint(pods); err != nil || got != "[{ns1 web-0 n1 [10.1.0.0]}]" {
		t.Errorf("%s, %v", got, err)
	}
}

// TestPodsOfFiles: they are those of the manifests as they are now, also of what stayed as it was.
func TestPodsOfFiles(t *testing.T) {
	d := newHarness(t)
	manifest := func(name, pod string) {
		t.Helper()
		d.replace(name+".yaml", `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: `+name+`, namespace: ns, labels: {kubernetes.io/service-name: web}},
addressType: IPv4, ports: [{port: 80}], endpoints: [{addresses: [10.1.0.1], targetRef: {kind: Pod, name: `+pod+`}}]}`)
	}
	names := func() string {
		for range 3 {
			d.poll()
		}
		pods, err := d.source.Pods(t.Context(), "ns")
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, p := range pods {
			all = append(all, p.Name)
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	manifest("a", "web-0")
	manifest("b", "web-1")
	if got := names(); got != "web-0 web-1" {
		t.Errorf("known are %q", got)
	}
	manifest("b", "web-22")
	if got := names(); got != "web-0 web-22" {
		t.Errorf("after a change known are %q", got)
	}
	d.remove("a.yaml")
	if got := names(); got != "web-22" {
		t.Errorf("after a removal known are %q", got)
	}
	if pods, _ := d.source.Pods(t.Context(), "other"); pods != nil {
		t.Errorf("of another namespace: %v", pods)
	}
}
