// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/cluster"
	"github.com/pointsman/pointsman/test/traffic"
)

const (
	rounds     = 9                // changes of one Service, for a median
	churnTime  = 30 * time.Second // how long churn changes other Services
	churnPause = 10 * time.Millisecond
	writers    = 8 // goroutines that write these changes, since one request may take longer than churnPause
	openings   = 10_000
)

// caller is the address of a pod that calls Services. The endpoint listens accepts its calls, the endpoint refuses
// refuses them.
var (
	caller  = netip.MustParseAddr("10.180.0.9")
	listens = netip.MustParseAddrPort("10.200.0.1:8080")
	refuses = netip.MustParseAddrPort("10.200.0.2:8080")
)

// A size is a number of Services, and the number of endpoints of each.
type size struct{ services, endpoints int }

func (s size) String() string { return fmt.Sprintf("%dx%d", s.services, s.endpoints) }

// A world is a cluster with Services, and the node where a proxy serves them.
type world struct {
	size
	cluster *cluster.Cluster
	kube    kubernetes.Interface
	pod     *netns.Host
	loaded  int // number of Services in the API server
	churned int // number of endpoints that churn has created
}

func newWorld(b *testing.B, s size) *world {
	b.Helper()
	testbed, err := netns.New()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = testbed.Close() }) // also deletes the namespaces
	w := &world{size: s, cluster: cluster.Start(b, cluster.Options{})}
	w.cluster.Load(node())
	w.kube = w.cluster.Client()
	for i := range min(100, s.services) { // the API server refuses changes in a namespace that does not exist
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: service(i).Namespace}}
		if _, err := w.kube.CoreV1().Namespaces().Create(b.Context(), space, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	host, err := testbed.Behind("endpoint", listens.Addr())
	if err == nil {
		_, err = netns.Answer(context.Background(), host, sdk.TCP, listens) // listens until the namespace is deleted
	}
	if err == nil {
		_, err = testbed.Behind("endpoint", refuses.Addr())
	}
	if err == nil {
		w.pod, err = testbed.Behind("caller", caller)
	}
	if err != nil {
		b.Fatal(err)
	}
	return w
}

// load writes Services to the API server until it has n.
func (w *world) load(n int) {
	var more []metav1.Object
	for ; w.loaded < n; w.loaded++ {
		s := slice(w.loaded, w.endpoints)
		if w.isCalled(w.loaded) {
			s.Endpoints = s.Endpoints[:1]
			s.Endpoints[0].Addresses[0] = listens.Addr().String()
		}
		more = append(more, service(w.loaded), s)
	}
	w.cluster.Load(more...)
}

// isCalled reports whether the i-th Service has the endpoint that accepts calls.
func (w *world) isCalled(i int) bool { return (i+1)%part == 0 || i == w.services-1 }

// changedService returns the number of the Service whose endpoint change changes: one in the middle for which isCalled
// is true.
func (w *world) changedService() int { return min(max(1, w.services/2/part)*part, w.services) - 1 }

// other returns the number of a Service for which isCalled is false: i or its predecessor, modulo the number of Services.
func (w *world) other(i int) int {
	if i %= w.services; w.isCalled(i) {
		i--
	}
	return i
}

// call connects from the pod to the i-th Service.
func (w *world) call(i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := w.pod.Dial(ctx, "tcp4", caller, frontend(i))
	if err == nil {
		conn.Close()
	}
	return err
}

// connections opens connections to a Service and to its endpoint by turns, so that other load of the machine affects
// both alike. It returns the median of the differences: how many seconds longer a connection to the Service takes.
func (w *world) connections(b *testing.B) float64 {
	b.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the garbage collector would add noise
	var to []netip.AddrPort
	for i := range w.services {
		if w.isCalled(i) {
			to = append(to, frontend(i))
		}
	}
	longer := make([]time.Duration, openings)
	err := w.pod.Do(func() error {
		for i := range longer {
			pair := [2]netip.AddrPort{listens, to[i/2%len(to)]}
			first, err := traffic.Opened(pair[i%2])
			second, err2 := traffic.Opened(pair[1-i%2])
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			if longer[i] = second - first; i%2 == 1 {
				longer[i] = first - second
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	slices.Sort(longer)
	return longer[openings/2].Seconds()
}

// changes calls change several times, and returns the medians of its results. After the last change, the Service has the
// endpoint that listens.
func (w *world) changes(b *testing.B, calls bool) (done, seen float64) {
	b.Helper()
	var all [2][]float64
	for i := range 2 * (rounds/2 + 1) {
		time.Sleep(time.Second) // kube-proxy's minimum pause between two syncs
		done, seen := w.change(b, []netip.AddrPort{refuses, listens}[i%2], calls)
		all[0], all[1] = append(all[0], done.Seconds()), append(all[1], seen.Seconds())
	}
	for i := range all {
		slices.Sort(all[i])
	}
	return all[0][rounds/2], all[1][rounds/2]
}

// change replaces the endpoint of a Service. Both results are durations since the answer of the API server: done until
// the proxy has written the change, by the proxy's own metric, which counts from the trigger time in the EndpointSlice;
// and seen until a call has shown the change. change fails if a call after done still misses the new endpoint. Calls take
// processor time from the proxy. Without calls, change waits until the proxy has measured the change before it calls.
func (w *world) change(b *testing.B, to netip.AddrPort, calls bool) (done, seen time.Duration) {
	b.Helper()
	const count, sum = "network_programming_duration_seconds_count", "network_programming_duration_seconds_sum"
	s := slice(w.changedService(), 1)
	s.Endpoints[0].Addresses[0] = to.Addr().String()
	before, written := metrics(), time.Now()
	s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: written.Format(time.RFC3339Nano)}
	if err := w.write(b, s); err != nil {
		b.Fatal(err)
	}
	answered := time.Now()
	now := before
	measured := func() bool {
		now = metrics()
		return now.of(count) > before.of(count)
	}
	if !calls {
		time.Sleep(10 * churnPause)
		until(b, "the proxy has measured the change", measured)
	}
	var missed time.Time // start of the last call that did not reach the endpoint
	until(b, "the change is served", func() bool {
		started := time.Now()
		if (w.call(w.changedService()) == nil) == (to == listens) {
			return true
		}
		missed = started
		return false
	})
	seen = time.Since(answered)
	until(b, "the proxy has measured the change", measured)
	at := written.Add(time.Duration((now.of(sum) - before.of(sum)) * float64(time.Second)))
	if n := now.of(count) - before.of(count); n != 1 {
		b.Errorf("the proxy measured %v changes, want 1", n)
	}
	if missed.After(at) {
		b.Errorf("a call missed the new endpoint %s after the time at which the proxy had written it by its own metric", missed.Sub(at))
	}
	return at.Sub(answered), seen
}

// churn replaces an endpoint of another Service a hundred times per second.
func (w *world) churn(b *testing.B) {
	b.Helper()
	ticker := time.NewTicker(churnPause)
	defer ticker.Stop()
	due := make(chan *discoveryv1.EndpointSlice)
	var all sync.WaitGroup
	for range writers {
		all.Go(func() { // ends with due
			for s := range due {
				if err := w.write(b, s); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := w.churned; i < w.churned+int(churnTime/churnPause); i++ {
		s := slice(w.other(i), w.endpoints)
		s.Endpoints[0].Addresses[0] = netip.AddrFrom4([4]byte{10, 201, byte(i >> 8), byte(i)}).String()
		<-ticker.C
		due <- s
	}
	w.churned += int(churnTime / churnPause)
	close(due)
	all.Wait()
}

// write patches the endpoints and the annotations of an EndpointSlice.
func (w *world) write(b *testing.B, s *discoveryv1.EndpointSlice) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": s.Annotations}, "endpoints": s.Endpoints})
	if err == nil {
		_, err = w.kube.DiscoveryV1().EndpointSlices(s.Namespace).Patch(b.Context(), s.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	return err
}

func objects(services, endpoints int) []metav1.Object {
	all := []metav1.Object{node()}
	for i := range services {
		all = append(all, service(i), slice(i, endpoints))
	}
	return all
}

func node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n0"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.10"}}},
	}
}

func frontend(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 97, byte(i / 250), byte(1 + i%250)}), 80)
}

func service(i int) *corev1.Service {
	addr := frontend(i).Addr().String()
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("namespace-%d", i%100), Name: fmt.Sprintf("service-%d", i), Labels: map[string]string{"app.kubernetes.io/name": fmt.Sprintf("app-%d", i)}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: addr, ClusterIPs: []string{addr},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
			InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster), SessionAffinity: corev1.ServiceAffinityNone,
			Selector: map[string]string{"app.kubernetes.io/name": fmt.Sprintf("app-%d", i)},
			Ports:    []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

func slice(i, endpoints int) *discoveryv1.EndpointSlice {
	s := service(i)
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name + "-abcde",
			Labels: map[string]string{discoveryv1.LabelServiceName: s.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(8080))}},
	}
	for j := range endpoints {
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", 128+j, i/250, 1+i%250)},
			NodeName:   ptr.To(fmt.Sprintf("n%d", j)),
			Zone:       ptr.To("zone-1"),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: s.Namespace, Name: fmt.Sprintf("%s-%d", s.Name, j), UID: "1c2bb2b9-5e0c-4a4a-9c5e-6d8a2e0d6c3f"},
		})
	}
	return out
}
