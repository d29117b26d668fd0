// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/test/cluster"
)

// others is how many Services there are besides the one that is measured.
const others = 1000

// BenchmarkEndpointToConnection measures from the write of an EndpointSlice until a
// call of a pod is first answered by the endpoint that it brings: on node-a with
// pointsman, and then on node-b with kube-proxy. Neither waits between two updates.
func BenchmarkEndpointToConnection(b *testing.B) {
	w := newWorld(b, modes()[0])
	w.fill()
	s := w.service("hot")
	var ours, theirs []time.Duration
	b.Run("pointsman", func(b *testing.B) {
		w, n := w.on(b), w.nodes[0]
		w.start(n)
		ours = w.follow(b, n, s)
	})
	b.Run("kube-proxy", func(b *testing.B) {
		w, n := w.on(b), w.nodes[1]
		w.kubeProxy(n.machines[0])
		theirs = w.follow(b, n, s)
		b.ReportMetric(float64(percentile(ours, 50))/float64(percentile(theirs, 50)), "x-p50")
		b.ReportMetric(float64(percentile(ours, 99))/float64(percentile(theirs, 99)), "x-p99")
	})
}

// percentile is a time that n of a hundred do not exceed; they are sorted.
func percentile(took []time.Duration, n int) time.Duration {
	return took[min(len(took)*n/100, len(took)-1)]
}

// follow moves s from one pod to another, and waits each time until a pod of n gets
// there. It returns how long that took, the shortest first.
func (w *world) follow(b *testing.B, n *node, s *corev1.Service) (took []time.Duration) {
	pod, i := n.pods[0], 0
	move := func() time.Duration {
		e := w.nodes[i%2].end(1)
		i++
		begin := time.Now()
		w.endpoints(s.Name, e)
		for w.lands[0].call(w.Context(), pod, "tcp4", at(s, 0, 80)) != saw(e.pod, backend, pod.addrs[0]) && w.Context().Err() == nil { // the call itself takes a moment
		}
		return time.Since(begin)
	}
	move() // the first also has to bring everything else
	w.run(n.machines[0], "conntrack", "-F")
	for b.Loop() {
		took = append(took, move())
		time.Sleep(100 * time.Millisecond) // of a benchmark: what kube-proxy batches is not what is measured
	}
	slices.Sort(took)
	b.ReportMetric(float64(percentile(took, 50).Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(percentile(took, 99).Microseconds())/1000, "p99-ms")
	b.ReportMetric(0, "ns/op") // it counts the pauses too
	return took
}

// fill makes the other Services, of ten endpoints each.
func (w *world) fill() {
	w.Helper()
	var all []metav1.Object
	for i := range others {
		name := fmt.Sprintf("other-%d", i)
		ip := fmt.Sprintf("10.100.%d.%d", i/250, i%250+1)
		meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
		policy, one := corev1.ServiceInternalTrafficPolicyCluster, corev1.IPFamilyPolicySingleStack
		all = append(all, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip}, SessionAffinity: corev1.ServiceAffinityNone,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: &one, InternalTrafficPolicy: &policy,
			Ports: []corev1.ServicePort{{Name: "tcp", Port: 80, Protocol: corev1.ProtocolTCP}},
		}})
		meta.Labels = map[string]string{discoveryv1.LabelServiceName: name}
		slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4, Ports: ports(backend)[:1]}
		for j := range 10 {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.128.%d.%d", i/20, (i%20)*10+j+1)}, Conditions: conditions(true, true, false)})
		}
		all = append(all, slice)
	}
	w.api.Load(all...)
}

// kubeProxy runs Kubernetes' own on a machine, until the test ends.
func (w *world) kubeProxy(m *machine, args ...string) {
	w.Helper()
	log, err := os.Create(m.path("kube-proxy.log"))
	if err != nil {
		w.Fatal(err)
	}
	defer log.Close()
	binary, err := filepath.Abs("../../bin/peers/kube-proxy")
	if err != nil {
		w.Fatal(err)
	}
	args = append([]string{"--proxy-mode=iptables", "--hostname-override=" + m.node.name, "--conntrack-max-per-core=0",
		"--iptables-min-sync-period=0s", "--detect-local-mode=NodeCIDR", "--kubeconfig=" + w.api.Kubeconfig(cluster.Token(cluster.Admin), "https://127.0.0.1:6443")}, args...)
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	ended := w.begin(m, cmd)
	w.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	w.hears(m.node.place, "http://127.0.0.1:10249/proxyMode", "200 iptables")
}
