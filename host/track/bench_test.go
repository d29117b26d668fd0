// SPDX-License-Identifier: Apache-2.0

package track

import (
	"fmt"
	"runtime"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// turning is the change of one endpoint in n Services, followed by a dataplane
// until it confirms: each call is another change.
func turning(tb testing.TB, n int) func() {
	tracker, _ := newTracker()
	fill(tracker, n)
	c := tracker.Cursor(everything)
	u, _ := c.Next()
	c.Ack(u.To, nil)
	turns := [2]*discoveryv1.EndpointSlice{sliceOf(7, 9), sliceOf(7, 10)}
	i := 0
	return func() {
		tracker.SetSlice(turns[i%2])
		i++
		u, ok := c.Next()
		if !ok || len(u.Set) != 1 || len(u.Delete) != 0 || u.Full || u.Node != nil {
			tb.Fatalf("an update of %d Services", len(u.Set))
		}
		c.Ack(u.To, nil)
	}
}

// What a change costs does not hang on how many Services there are: it allocates
// as often, and what is told of it is one Service.
func TestOneEndpointCostsTheSameInMany(t *testing.T) {
	few, many := testing.AllocsPerRun(200, turning(t, 100)), testing.AllocsPerRun(200, turning(t, 10_000))
	if few != many {
		t.Errorf("one endpoint changes: %v allocations at 100 Services, %v at 10,000", few, many)
	}
}

// The time of it.
func BenchmarkOneEndpoint(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			change := turning(b, n)
			b.ReportAllocs()
			for b.Loop() {
				change()
			}
		})
	}
}

// sliceOf is that of Service number i as fill makes it, with n endpoints.
func sliceOf(i, n int) *discoveryv1.EndpointSlice {
	var endpoints []string
	for j := range n {
		endpoints = append(endpoints, fmt.Sprintf("10.%d.%d.%d n%d", 180+j, i/250, 1+i%250, j))
	}
	name := fmt.Sprintf("s%d", i)
	return newSlice(name+"-1", name, endpoints...)
}

// An event that changes nothing we serve: nothing is allocated.
func BenchmarkNoChange(b *testing.B) {
	tracker, _ := newTracker()
	fill(tracker, 10_000)
	slice := sliceOf(7, 10)
	b.ReportAllocs()
	for b.Loop() {
		tracker.SetSlice(slice)
	}
}

// What a hundred thousand endpoints in ten thousand Services take up, with one
// dataplane that has confirmed them.
func BenchmarkMemory(b *testing.B) {
	const services = 10_000
	for b.Loop() {
		before := heap()
		tracker, _ := newTracker()
		fill(tracker, services)
		c := tracker.Cursor(everything)
		u, _ := c.Next()
		c.Ack(u.To, nil)
		u.Set = nil
		b.ReportMetric(float64(heap()-before)/(services*10), "B/endpoint")
		runtime.KeepAlive(c)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
