// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/pointsman/pointsman/test/cluster"
	"github.com/pointsman/pointsman/test/eventually"
)

// objects holds the API server and what was written to it.
type objects struct {
	testing.TB
	root testing.TB // the outermost test
	kubernetes.Interface
	services map[string]*corev1.Service
	slices   map[string]*discoveryv1.EndpointSlice
	marks    *int
}

func newObjects(t testing.TB, api *cluster.Cluster) *objects {
	t.Helper()
	b := &objects{TB: t, root: t, Interface: api.Client(), services: make(map[string]*corev1.Service), slices: make(map[string]*discoveryv1.EndpointSlice), marks: new(int)}
	for i, name := range []string{"node", "other"} {
		p := at(name)
		cluster.AddNode(t, b, p.node, i, p.addrs[:]...)
	}
	return b
}

// write makes the cluster contain exactly things.
func (b *objects) write(things []thing) {
	b.Helper()
	services, list := make(map[string]*corev1.Service), make(map[string]*discoveryv1.EndpointSlice)
	for _, t := range things {
		services[t.service.Name] = t.service
		for _, s := range t.slices() {
			list[s.Name] = s
		}
	}
	b.remove(services, list)
	for _, name := range slices.Sorted(maps.Keys(services)) {
		b.put(services[name])
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		b.putSlice(list[name])
	}
}

// remove deletes what should not exist, and what cannot be changed to what should.
func (b *objects) remove(services map[string]*corev1.Service, list map[string]*discoveryv1.EndpointSlice) {
	b.Helper()
	for name, old := range b.services {
		if s := services[name]; s != nil && !isAnother(old, s) {
			continue
		}
		b.must(b.CoreV1().Services(namespace).Delete(b.Context(), name, metav1.DeleteOptions{}))
		delete(b.services, name)
	}
	for name := range b.slices {
		if list[name] == nil {
			b.must(b.DiscoveryV1().EndpointSlices(namespace).Delete(b.Context(), name, metav1.DeleteOptions{}))
			delete(b.slices, name)
		}
	}
}

// isAnother reports whether a Service cannot be changed to s. Its addresses stay, except that a second family adds
// some, and that a Service may become a mere name.
func isAnother(old, s *corev1.Service) bool {
	return !sameAddress(old.Spec.ClusterIPs, s.Spec.ClusterIPs) || old.Spec.HealthCheckNodePort != s.Spec.HealthCheckNodePort || inTwoProtocols(old) || inTwoProtocols(s)
}

func sameAddress(old, list []string) bool {
	return len(old) == 0 || len(list) == 0 || old[0] == list[0]
}

// inTwoProtocols reports whether s has one node port in two protocols, which is only possible when it is created.
func inTwoProtocols(s *corev1.Service) bool {
	ports := s.Spec.Ports
	return len(ports) == 2 && ports[0].NodePort != 0 && ports[0].NodePort == ports[1].NodePort
}

func (b *objects) put(s *corev1.Service) {
	b.Helper()
	var stored *corev1.Service
	err := eventually.Try(eventually.Timeout, func() (err error) {
		stored, err = b.create(s) // the server frees addresses and ports after a while
		return err
	})
	if err != nil {
		b.Fatalf("writing Service %s: %v", s.Name, err)
	}
	api := b.CoreV1().Services(namespace)
	stored.Status.LoadBalancer = s.Status.LoadBalancer
	if len(s.Status.LoadBalancer.Ingress) > 0 || b.services[s.Name] != nil {
		if stored, err = api.UpdateStatus(b.Context(), stored, metav1.UpdateOptions{}); err != nil {
			b.Fatalf("writing the status of Service %s: %v", s.Name, err)
		}
	}
	b.services[s.Name] = stored
}

// create creates or changes a Service.
func (b *objects) create(s *corev1.Service) (*corev1.Service, error) {
	api := b.CoreV1().Services(namespace)
	if b.services[s.Name] == nil {
		return api.Create(b.Context(), s, metav1.CreateOptions{})
	}
	stored, err := api.Get(b.Context(), s.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	update := s.DeepCopy()
	update.ResourceVersion = stored.ResourceVersion
	return api.Update(b.Context(), update, metav1.UpdateOptions{})
}

func (b *objects) putSlice(s *discoveryv1.EndpointSlice) {
	b.Helper()
	api := b.DiscoveryV1().EndpointSlices(namespace)
	_, err := api.Create(b.Context(), s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = api.Update(b.Context(), s, metav1.UpdateOptions{})
	}
	if err != nil {
		b.Fatalf("writing EndpointSlice %s: %v", s.Name, err)
	}
	b.slices[s.Name] = s
}

func (b *objects) must(err error) {
	b.Helper()
	if err != nil && !apierrors.IsNotFound(err) {
		b.Fatal(err)
	}
}

// mark writes a Service after everything else: a proxy that serves it knows the rest.
func (b *objects) mark() thing {
	b.Helper()
	*b.marks++
	m := newThing(8000+*b.marks, fmt.Sprintf("mark-%d", *b.marks), []end{on("far1", 8080)})
	b.put(m.service)
	for _, s := range m.slices() {
		b.putSlice(s)
	}
	return m
}
