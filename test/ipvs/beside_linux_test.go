// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pointsman/pointsman/test/cluster"
)

// BenchmarkBesideKubeProxy has the real kube-proxy in its ipvs mode serve Services of
// two endpoints from a real API server, and after it the whole product: both as
// processes, from their start to the last entry of a set, and for single endpoints that
// come. There are POINTSMAN_BENCH_SERVICES, or 300: kube-proxy runs a program for each
// entry of a set, which takes it minutes where a kernel is a process itself.
func BenchmarkBesideKubeProxy(b *testing.B) {
	n := newNode(b)
	binary := peer(b, "kube-proxy")
	b.Setenv("POINTSMAN_APISERVER", peer(b, "kube-apiserver"))
	count := 300
	if text := os.Getenv("POINTSMAN_BENCH_SERVICES"); text != "" {
		count, _ = strconv.Atoi(text)
	}
	c := cluster.Start(b, cluster.Options{})
	c.Load(many(count)...)
	n.write("host.yaml", strings.Replace(n.config("ipvs"), "{files: {path: services}}", "{kubernetes: {kubeconfig: "+c.Kubeconfig(cluster.Token(cluster.Admin), "")+"}}", 1))
	for b.Loop() {
		var stop func()
		theirs := n.measure(c, count, 1, func() (pids []int) {
			var pid int
			pid, stop = n.startKubeProxy(binary, c, "--ipvs-min-sync-period=20ms", "--ipvs-sync-period=1h")
			return []int{pid}
		})
		stop()
		n.cleanup("--kube-proxy")
		ours := n.measure(c, count, 1+changes, func() []int {
			n.start()
			return []int{n.cmd.Process.Pid, n.plugin()}
		})
		n.stop()
		n.cleanup()
		b.ReportMetric(theirs.full.Seconds()/ours.full.Seconds(), "x-faster-load(≥5)")
		b.ReportMetric(theirs.fullCPU/ours.fullCPU, "x-less-cpu-load")
		b.ReportMetric(theirs.one.Seconds()/ours.one.Seconds(), "x-faster-change(≥20)")
		b.ReportMetric(theirs.oneCPU/ours.oneCPU, "x-less-cpu-change")
		b.Logf("%d Services: kube-proxy %+v, pointsman %+v", count, theirs, ours)
	}
	b.ReportMetric(0, "ns/op")
}

// A cost is what one of them takes: until it serves, and until an endpoint that comes
// is in the kernel; with the seconds of processor time of its processes, and of
// programs that they run.
type cost struct {
	full, one       time.Duration
	fullCPU, oneCPU float64
}

const changes = 5

// measure starts processes, which are to serve count Services. Of some of those, from
// the first on, one endpoint more comes.
func (n *node) measure(c *cluster.Cluster, count, first int, start func() []int) (took cost) {
	n.Helper()
	began := time.Now()
	pids := start()
	limit := timeout + time.Duration(count)*time.Second
	n.within(limit, "all is served", func() error {
		// 10.97.0.0/16 are the Services, 10.131.0.0 to 10.133.255.255 their endpoints.
		table := n.table()
		servers, reals := strings.Count(table, "\nTCP  0A61"), strings.Count(table, "\n  -> 0A8")
		if servers != count || reals != 2*count+first-1 {
			return fmt.Errorf("there are %d virtual servers and %d reals", servers, reals)
		}
		if entries := strings.Count(n.shell("ipset save"), "-CLUSTER-IP 10.97."); entries != count {
			return fmt.Errorf("there are %d entries", entries)
		}
		return nil
	})
	took.full = time.Since(began)
	took.fullCPU = n.atRest(pids)
	for i := first; i < first+changes; i++ {
		more := slice(i)
		more.Endpoints = append(more.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.133.%d.%d", i/250, 1+i%250)}, NodeName: ptr.To("n2")})
		began := time.Now()
		c.Load(more)
		n.within(limit, "the endpoint is there", func() error {
			if !strings.Contains(n.table(), fmt.Sprintf("-> 0A85%02X%02X:", i/250, 1+i%250)) {
				return errors.New("it is not")
			}
			return nil
		})
		took.one += time.Since(began) / changes
	}
	took.oneCPU = (n.atRest(pids) - took.fullCPU) / changes
	return took
}

// table is what the kernel has of virtual servers. No program is run for that: it would
// take longer than what is measured.
func (n *node) table() string {
	n.Helper()
	text, err := os.ReadFile("/proc/self/net/ip_vs")
	if err != nil {
		n.Fatal(err)
	}
	return string(text)
}

// atRest waits until processes have no more to do than to look after the kernel, and
// returns the processor time that they have used, in seconds.
func (n *node) atRest(pids []int) float64 {
	n.Helper()
	const lull, little = 3 * time.Second, 0.3 // of real time: this is a benchmark, and no fact says that they are done
	last, since := used(pids), time.Now()
	for end := time.Now().Add(timeout); time.Since(since) < lull && time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if now := used(pids); now > last+little {
			last, since = now, time.Now()
		}
	}
	return used(pids)
}

// used is the processor time of processes, and of programs that they ran.
func used(pids []int) float64 {
	sum := 0
	for _, pid := range pids {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		for i := 11; i < 15 && i < len(fields); i++ { // of itself and of its children, in user and in kernel mode
			ticks, _ := strconv.Atoi(fields[i])
			sum += ticks
		}
	}
	return float64(sum) / 100
}

// many are count Services with their endpoints, and this node.
func many(count int) []metav1.Object {
	all := []metav1.Object{&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.10"}}},
	}}
	for i := range count {
		all = append(all, service(i), slice(i))
	}
	return all
}

func service(i int) *corev1.Service {
	addr := fmt.Sprintf("10.97.%d.%d", i/250, 1+i%250)
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "bench", Name: fmt.Sprintf("service-%d", i)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: addr, ClusterIPs: []string{addr},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
			InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster), SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

func slice(i int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "bench", Name: fmt.Sprintf("service-%d-abcde", i), Labels: map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("service-%d", i)}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(8080))}},
	}
	for j := range 2 {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 131+j, i/250, 1+i%250)}, NodeName: ptr.To("n2")})
	}
	return s
}
