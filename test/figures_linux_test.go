// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// BenchmarkOneEndpointChanges is the whole way of one changed EndpointSlice, from
// the tracker to the acknowledgement of a plugin in a process of its own, at 100
// and at 10,000 Services. It counts the host's processor time and what the host
// writes to its sockets, for each change.
func BenchmarkOneEndpointChanges(b *testing.B) {
	const changes, rounds = 1000, 3
	plugin := build(b, "./test/keeper")
	few, many := &cost{}, &cost{}
	for b.Loop() {
		for range rounds {
			few.measure(b, plugin, 100, changes)
			many.measure(b, plugin, 10_000, changes)
		}
	}
	b.ReportMetric(0, "ns/op") // of rounds with their making: it says nothing
	b.ReportMetric(median(few.cpu)/float64(time.Microsecond), "cpu-µs/of100")
	b.ReportMetric(median(many.cpu)/float64(time.Microsecond), "cpu-µs/of10k")
	b.ReportMetric(median(many.cpu)/median(few.cpu), "x-cpu")
	b.ReportMetric(median(few.bytes), "B/of100")
	b.ReportMetric(median(many.bytes), "B/of10k")
	b.ReportMetric(median(many.bytes)/median(few.bytes), "x-bytes")
}

// A cost is what one change cost, in each round.
type cost struct{ cpu, bytes []float64 }

func (c *cost) measure(b *testing.B, plugin string, services, changes int) {
	b.Helper()
	w := newWay(b, plugin, services)
	defer w.end()
	turns := [2]*discoveryv1.EndpointSlice{sliceObject(7, 9), sliceObject(7, 10)}
	w.change(b, turns[0])
	w.change(b, turns[1])
	runtime.GC()
	cpu, bytes := cpuTime(b), written(b)
	for i := range changes {
		w.change(b, turns[i%2])
	}
	c.cpu = append(c.cpu, float64(cpuTime(b)-cpu)/float64(changes))
	c.bytes = append(c.bytes, float64(written(b)-bytes)/float64(changes))
}

// A way is a host's, from the tracker to a plugin.
type way struct {
	tracker *track.Tracker
	acked   chan feed.Acked
	end     func()
}

// newWay is one on which everything has been told once.
func newWay(b *testing.B, plugin string, services int) *way {
	b.Helper()
	w := &way{tracker: track.New(nil), acked: make(chan feed.Acked, 1)}
	w.tracker.Configure(track.Facts{NodeName: "n0"})
	for i := range services {
		w.tracker.SetService(serviceObject(i))
		w.tracker.SetSlice(sliceObject(i, 10))
	}
	w.tracker.Synced()
	remote, err := wire.Launch(b.Context(), wire.Command{Path: plugin, SocketDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	d, err := remote.Configure(b.Context(), sdk.Setup{})
	if err != nil {
		b.Fatal(err)
	}
	f, err := feed.New(clock.RealClock{}, w.tracker.Cursor(d), remote, feed.Settings{
		Retry: time.Second, Period: time.Minute, Gone: remote.Exited(),
		Hooks: feed.Hooks{Acked: func(a feed.Acked) { w.acked <- a }, Failed: func(err error) { b.Error(err) }},
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ran := make(chan error, 1)
	go func() { ran <- f.Run(ctx) }()
	w.end = func() {
		cancel()
		if err := <-ran; !errors.Is(err, context.Canceled) {
			b.Error(err)
		}
		if err := remote.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	}
	if first := <-w.acked; len(first.Update.Set) != services {
		b.Fatalf("the first update has %d Services", len(first.Update.Set))
	}
	return w
}

// change tells the tracker of a slice, and waits until a plugin serves by it.
func (w *way) change(b *testing.B, slice *discoveryv1.EndpointSlice) {
	w.tracker.SetSlice(slice)
	if a := <-w.acked; len(a.Update.Set) != 1 || a.Update.Full {
		b.Fatalf("an update of %d Services", len(a.Update.Set))
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

// sliceObject is the slice of Service number i, with n endpoints.
func sliceObject(i, n int) *discoveryv1.EndpointSlice {
	service := serviceObject(i)
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: service.Name + "-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: service.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(8080))}},
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

// build builds a program of this module, and is its path.
func build(b *testing.B, pkg string) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-o", path, pkg)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build %s: %v: %s", pkg, err, out)
	}
	return path
}

// cpuTime is what this process has used so far, its children left out.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// written is how many bytes this process has written so far, to sockets too.
func written(b *testing.B) int64 {
	b.Helper()
	io, err := os.ReadFile("/proc/self/io")
	if err != nil {
		b.Skip("needs /proc/self/io: ", err)
	}
	var read, wrote int64
	if _, err := fmt.Sscanf(string(io), "rchar: %d\nwchar: %d", &read, &wrote); err != nil {
		b.Fatal(err)
	}
	return wrote
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
