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
	rounds   = 9                // changes of one Service
	lasting  = 30 * time.Second // changes of other Services
	pause    = 10 * time.Millisecond
	writers  = 8 // of these changes: an API server takes its time
	openings = 10_000
)

// A pod that calls, and two endpoints: one accepts calls, the other refuses them.
var (
	caller  = netip.MustParseAddr("10.180.0.9")
	listens = netip.MustParseAddrPort("10.200.0.1:8080")
	refuses = netip.MustParseAddrPort("10.200.0.2:8080")
)

// A size is a number of Services and of endpoints of each.
type size struct{ services, endpoints int }

func (s size) String() string { return fmt.Sprintf("%dx%d", s.services, s.endpoints) }

// A world is a cluster with Services, and the node where a proxy serves them.
type world struct {
	size
	cluster *cluster.Cluster
	kube    kubernetes.Interface
	pod     *netns.Host
	loaded  int // of Services in the API server
	churned int // endpoints that were not used before
}

func newWorld(b *testing.B, s size) *world {
	b.Helper()
	testbed, err := netns.New()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = testbed.Close() }) // the namespace goes with it
	w := &world{size: s, cluster: cluster.Start(b, cluster.Options{})}
	w.cluster.Load(node())
	w.kube = w.cluster.Client()
	for i := range min(100, s.services) { // the API server changes nothing in a namespace that does not exist
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: service(i).Namespace}}
		if _, err := w.kube.CoreV1().Namespaces().Create(b.Context(), space, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	host, err := testbed.Behind("endpoint", listens.Addr())
	if err == nil {
		_, err = netns.Answer(context.Background(), host, sdk.TCP, listens) // until the namespace goes
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
		if w.called(w.loaded) {
			s.Endpoints = s.Endpoints[:1]
			s.Endpoints[0].Addresses[0] = listens.Addr().String()
		}
		more = append(more, service(w.loaded), s)
	}
	w.cluster.Load(more...)
}

// called reports whether the i-th Service leads to the endpoint that accepts calls.
func (w *world) called(i int) bool { return (i+1)%part == 0 || i == w.services-1 }

// changing returns the Service whose endpoint changes: one in the middle that is called.
func (w *world) changing() int { return min(max(1, w.services/2/part)*part, w.services) - 1 }

// other returns the number of a Service that is not called: the i-th one, or its predecessor.
func (w *world) other(i int) int {
	if i %= w.services; w.called(i) {
		i--
	}
	return i
}

// call returns no error if a pod's call to the i-th Service is accepted.
func (w *world) call(i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := w.pod.Dial(ctx, "tcp4", caller, frontend(i))
	if err == nil {
		conn.Close()
	}
	return err
}

// connections returns how many seconds longer, at the median, a pod's new connection to a Service takes than one
// straight to the endpoint right before or after it: the machine's other load affects both alike.
func (w *world) connections(b *testing.B) float64 {
	b.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // measures packets, not Go
	var to []netip.AddrPort
	for i := range w.services {
		if w.called(i) {
			to = append(to, frontend(i))
		}
	}
	longer := make([]time.Duration, openings)
	err := w.pod.Do(func() error {
		for i := range longer {
			pair := [2]netip.AddrPort{listens, to[i/2%len(to)]}
			first, err := traffic.Opened(pair[i%2])
			second, again := traffic.Opened(pair[1-i%2])
			if err := errors.Join(err, again); err != nil {
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

// changes returns the medians of what change returns. The last change leads to the endpoint that listens.
func (w *world) changes(b *testing.B, calls bool) (done, seen float64) {
	b.Helper()
	var all [2][]float64
	for i := range 2 * (rounds/2 + 1) {
		time.Sleep(time.Second) // kube-proxy waits that long between two updates
		done, seen := w.change(b, []netip.AddrPort{refuses, listens}[i%2], calls)
		all[0], all[1] = append(all[0], done.Seconds()), append(all[1], seen.Seconds())
	}
	for i := range all {
		slices.Sort(all[i])
	}
	return all[0][rounds/2], all[1][rounds/2]
}

// change gives a Service another endpoint. After the answer of the API server it measures when the proxy has written
// the change, by the proxy's own figure since the time in the EndpointSlice, and when a call reaches the endpoint. A
// later call checks that figure. Without calls, which take processor time from the proxy, the first call comes after
// the change is written.
func (w *world) change(b *testing.B, to netip.AddrPort, calls bool) (done, seen time.Duration) {
	b.Helper()
	const count, sum = "network_programming_duration_seconds_count", "network_programming_duration_seconds_sum"
	s := slice(w.changing(), 1)
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
		time.Sleep(10 * pause)
		until(b, "the proxy has measured the change", measured)
	}
	var missed time.Time // start of the last call that did not reach the endpoint
	until(b, "the change is served", func() bool {
		began := time.Now()
		if (w.call(w.changing()) == nil) == (to == listens) {
			return true
		}
		missed = began
		return false
	})
	seen = time.Since(answered)
	until(b, "the proxy has measured the change", measured)
	at := written.Add(time.Duration((now.of(sum) - before.of(sum)) * float64(time.Second)))
	if n := now.of(count) - before.of(count); n != 1 {
		b.Errorf("the proxy measured %v changes, not one", n)
	}
	if missed.After(at) {
		b.Errorf("a call missed the endpoint %s after the proxy said that it is written", missed.Sub(at))
	}
	return at.Sub(answered), seen
}

// churn gives other Services another endpoint each, a hundred times a second.
func (w *world) churn(b *testing.B) {
	b.Helper()
	ticker := time.NewTicker(pause)
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
	for i := w.churned; i < w.churned+int(lasting/pause); i++ {
		s := slice(w.other(i), w.endpoints)
		s.Endpoints[0].Addresses[0] = netip.AddrFrom4([4]byte{10, 201, byte(i >> 8), byte(i)}).String()
		<-ticker.C
		due <- s
	}
	w.churned += int(lasting / pause)
	close(due)
	all.Wait()
}

// write writes the endpoints of an EndpointSlice, and its annotations.
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
