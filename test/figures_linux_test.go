// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk/wire"
	"github.com/pointsman/pointsman/test/built"
)

// BenchmarkOneEndpointChanges measures the path of one changed EndpointSlice from the tracker to the acknowledgement of
// a plugin in another process, among 100 and among 10,000 Services in turn: the processor time of the host, and the
// bytes that it writes.
func BenchmarkOneEndpointChanges(b *testing.B) {
	few, many := newWay(b, 100), newWay(b, 10_000)
	var atFew, atMany cost
	for b.Loop() {
		for range 10 {
			atFew.measure(b, few, 200)
			atMany.measure(b, many, 200)
		}
	}
	b.ReportMetric(0, "ns/op") // a round has many changes
	b.ReportMetric(median(atFew.cpu)/float64(time.Microsecond), "cpu-µs/of100")
	b.ReportMetric(median(atMany.cpu)/float64(time.Microsecond), "cpu-µs/of10k")
	b.ReportMetric(median(atMany.cpu)/median(atFew.cpu), "x-cpu(≤1.3)")
	b.ReportMetric(median(atFew.bytes), "B/of100")
	b.ReportMetric(median(atMany.bytes), "B/of10k")
	b.ReportMetric(median(atMany.bytes)/median(atFew.bytes), "x-bytes(≤1.3)")
}

// TestOneEndpointOnTheWire checks that the bytes the host writes for one changed endpoint do not grow with the number
// of Services.
func TestOneEndpointOnTheWire(t *testing.T) {
	var few, many cost
	few.measure(t, newWay(t, 100), 300)
	many.measure(t, newWay(t, 5000), 300)
	if few.bytes[0] > 400 || many.bytes[0] > 1.3*few.bytes[0] {
		t.Errorf("one endpoint changes: the host writes %.0f bytes among 100 Services, %.0f among 5,000", few.bytes[0], many.bytes[0])
	}
}

// A cost is the cost of one change, in each round.
type cost struct{ cpu, bytes []float64 }

func (c *cost) measure(tb testing.TB, w *way, changes int) {
	tb.Helper()
	cpu, bytes := cpuTime(tb), written(tb)
	for range changes {
		w.change(tb)
	}
	c.cpu = append(c.cpu, float64(cpuTime(tb)-cpu)/float64(changes))
	c.bytes = append(c.bytes, float64(written(tb)-bytes)/float64(changes))
}

// A way is the path of a host's changes, from the tracker to a plugin.
type way struct {
	tracker *track.Tracker
	acked   chan feed.Acked
	slices  [2]*discoveryv1.EndpointSlice // the next to set, and the one that is set
}

// newWay returns a way on which a plugin in another process has acknowledged the first full update. It ends with the
// test.
func newWay(tb testing.TB, services int) *way {
	tb.Helper()
	w := &way{track.New(nil), make(chan feed.Acked, 1), [2]*discoveryv1.EndpointSlice{sliceObject(7, 9), sliceObject(7, 10)}}
	w.tracker.Configure(track.Facts{NodeName: "n0"})
	for i := range services {
		w.tracker.SetService(serviceObject(i))
		w.tracker.SetSlice(sliceObject(i, 10))
	}
	w.tracker.Synced()
	dir := tb.TempDir()
	p := launch.Plugin{Name: "keeper", Path: filepath.Join(dir, "keeper"), SocketDir: dir}
	err := built.Into(dir, "", "./test/keeper")
	binary, failed := p.Open()
	if err := errors.Join(err, failed); err != nil {
		tb.Fatal(err)
	}
	defer binary.Close()
	process, err := p.Start(tb.Context(), binary, nil, func(wire.LogLine) {})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { process.End(nil) })
	f := feed.New(w.tracker.Cursor(process.Description), process.Remote, feed.Settings{
		Retry: time.Second, Period: time.Minute, Gone: process.Remote.Exited(),
		Acked: func(a feed.Acked) { w.acked <- a }, Failed: func(err error) { tb.Error(err) },
	})
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { _ = f.Run(ctx) })
	tb.Cleanup(func() { cancel(); run.Wait() })
	if first := <-w.acked; len(first.Update.Set) != services {
		tb.Fatalf("the first update has %d Services", len(first.Update.Set))
	}
	return w
}

// change sets the other slice, and waits until the plugin has acknowledged it.
func (w *way) change(tb testing.TB) {
	w.tracker.SetSlice(w.slices[0])
	w.slices[0], w.slices[1] = w.slices[1], w.slices[0]
	if a := <-w.acked; len(a.Update.Set) != 1 || a.Update.Full {
		tb.Fatalf("an update of %d Services", len(a.Update.Set))
	}
}

func serviceObject(i int) *corev1.Service {
	name, addr := fmt.Sprintf("service-%d", i), fmt.Sprintf("172.16.%d.%d", i/250, 1+i%250)
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("namespace-%d", i%100), Name: name},
		Spec: corev1.ServiceSpec{
			ClusterIP: addr, ClusterIPs: []string{addr},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

// sliceObject returns the EndpointSlice of Service i with n endpoints.
func sliceObject(i, n int) *discoveryv1.EndpointSlice {
	service := serviceObject(i)
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: service.Name + "-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: service.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(18080))}},
	}
	for j := range n {
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", j, i/250, 1+i%250)},
			NodeName:   ptr.To(fmt.Sprintf("n%d", j)),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		})
	}
	return out
}

// cpuTime returns the processor time of this process without its children.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// written returns how many bytes this process has written, also to sockets.
func written(tb testing.TB) int64 {
	tb.Helper()
	io, err := os.ReadFile("/proc/self/io")
	if err != nil {
		tb.Skip("needs /proc/self/io: ", err)
	}
	var read, wrote int64
	if _, err := fmt.Sscanf(string(io), "rchar: %d\nwchar: %d", &read, &wrote); err != nil {
		tb.Fatal(err)
	}
	return wrote
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
