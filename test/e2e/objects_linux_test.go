// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/netip"
	"os/exec"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/test/cluster"
)

// The namespace of all Services, and the host's ServiceAccount.
const (
	namespace = "default"
	account   = "system:serviceaccount:kube-system:pointsman"
)

// grantRights applies the project's own manifests, as an administrator would.
func (w *world) grantRights() {
	w.Helper()
	w.kubectl("apply", "-k", "../../configs/kubernetes")
}

func (w *world) kubectl(args ...string) string {
	w.Helper()
	args = append([]string{"--kubeconfig", w.api.Kubeconfig(cluster.Token(cluster.Admin), "")}, args...)
	out, err := exec.CommandContext(w.Context(), "../../bin/peers/kubectl", args...).CombinedOutput()
	if err != nil {
		w.Fatalf("kubectl %s: %v: %s", strings.Join(args[2:], " "), err, out)
	}
	return string(out)
}

// token returns a token of the ServiceAccount of the manifests.
func (w *world) token() string {
	w.Helper()
	request := &authenticationv1.TokenRequest{}
	answer, err := w.kube.CoreV1().ServiceAccounts("kube-system").CreateToken(w.Context(), "pointsman", request, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return answer.Status.Token
}

// port returns a port of a Service.
func port(number int32, protocol corev1.Protocol) corev1.ServicePort {
	return corev1.ServicePort{Name: strings.ToLower(string(protocol)), Port: number, Protocol: protocol}
}

// service creates a Service with TCP port 80 and UDP port 53 in both families, which exists until the test ends.
func (w *world) service(name string, edits ...func(*corev1.Service)) *corev1.Service {
	w.Helper()
	both := corev1.IPFamilyPolicyRequireDualStack
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{
			IPFamilyPolicy: &both,
			Ports:          []corev1.ServicePort{port(80, corev1.ProtocolTCP), port(53, corev1.ProtocolUDP)},
		},
	}
	for _, edit := range edits {
		edit(s)
	}
	s, err := w.kube.CoreV1().Services(namespace).Create(w.Context(), s, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { w.remove(name) })
	return s
}

// remove deletes a Service and its EndpointSlices, if they exist.
func (w *world) remove(name string) {
	ctx, cancel := cleanupContext() // it may run as a cleanup
	defer cancel()
	err := w.kube.CoreV1().Services(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.Error(err)
	}
	for _, suffix := range []string{"-v4", "-v6"} {
		err := w.kube.DiscoveryV1().EndpointSlices(namespace).Delete(ctx, name+suffix, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			w.Error(err)
		}
	}
}

// update changes a Service.
func (w *world) update(name string, edit func(*corev1.Service)) *corev1.Service {
	w.Helper()
	s, err := w.kube.CoreV1().Services(namespace).Get(w.Context(), name, metav1.GetOptions{})
	if err == nil {
		edit(s)
		s, err = w.kube.CoreV1().Services(namespace).Update(w.Context(), s, metav1.UpdateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// changeNode changes a Node object.
func (w *world) changeNode(n *node, edit func(*corev1.Node)) {
	w.Helper()
	object, err := w.kube.CoreV1().Nodes().Get(w.Context(), n.name, metav1.GetOptions{})
	if err == nil {
		edit(object)
		_, err = w.kube.CoreV1().Nodes().Update(w.Context(), object, metav1.UpdateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// An endpoint is a pod that answers for a Service, in a state.
type endpoint struct {
	pod   *place
	node  *node
	state discoveryv1.EndpointConditions
}

// readyEndpoint returns pod j of n as a ready endpoint.
func (n *node) readyEndpoint(j int) endpoint {
	return endpoint{pod: n.pods[j], node: n, state: conditions(true, true, false)}
}

func conditions(ready, serving, terminating bool) discoveryv1.EndpointConditions {
	return discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
}

// endpoints writes the EndpointSlices of a Service, one for each family.
func (w *world) endpoints(service string, list ...endpoint) {
	w.Helper()
	for i, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: service + []string{"-v4", "-v6"}[i],
				Labels:      map[string]string{discoveryv1.LabelServiceName: service},
				Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().UTC().Format(time.RFC3339Nano)},
			},
			AddressType: family,
			Ports:       []discoveryv1.EndpointPort{},
		}
		for _, e := range list {
			s.Endpoints = append(s.Endpoints, e.object(e.pod.addrs[i]))
		}
		if len(list) > 0 {
			s.Ports = ports(backend)
		}
		w.put(s)
	}
}

func (e endpoint) object(a netip.Addr) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{a.String()}, Conditions: e.state, NodeName: &e.node.name}
}

func ports(number int32) []discoveryv1.EndpointPort {
	var list []discoveryv1.EndpointPort
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		name := strings.ToLower(string(protocol))
		list = append(list, discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &protocol})
	}
	return list
}

// put creates or changes a slice.
func (w *world) put(s *discoveryv1.EndpointSlice) {
	w.Helper()
	slices := w.kube.DiscoveryV1().EndpointSlices(namespace)
	s.ResourceVersion = ""
	_, err := slices.Create(w.Context(), s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = slices.Update(w.Context(), s, metav1.UpdateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// eachSlice changes the slices of a Service.
func (w *world) eachSlice(service string, edit func(*discoveryv1.EndpointSlice)) {
	w.Helper()
	for _, suffix := range []string{"-v4", "-v6"} {
		slice, err := w.kube.DiscoveryV1().EndpointSlices(namespace).Get(w.Context(), service+suffix, metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		edit(slice)
		w.put(slice)
	}
}

// at returns a Service's ClusterIP in family 0 (IPv4) or 1, with a port.
func at(s *corev1.Service, family int, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIPs[family]), port)
}
