// SPDX-License-Identifier: Apache-2.0

package track

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// turning returns a function that changes one endpoint of n Services and waits until a dataplane has confirmed the
// change.
func turning(tb testing.TB, n int) func() {
	tracker, _ := newTracker()
	fill(tracker, n)
	c := tracker.Cursor(everything)
	u, _ := c.Next()
	c.Ack(u.To, nil)
	rounds := [2]*discoveryv1.EndpointSlice{sliceOf(7, 9), sliceOf(7, 10)}
	i := 0
	return func() {
		tracker.SetSlice(rounds[i%2])
		i++
		u, ok := c.Next()
		if !ok || len(u.Set) != 1 || len(u.Delete) != 0 || u.Full || u.Node != nil {
			tb.Fatalf("an update of %d Services", len(u.Set))
		}
		c.Ack(u.To, nil)
	}
}

// The cost of a change does not depend on the number of Services: the number of allocations is the same, and the update
// has one Service.
func TestCostOfOneEndpoint(t *testing.T) {
	few, many := testing.AllocsPerRun(200, turning(t, 100)), testing.AllocsPerRun(200, turning(t, 10_000))
	if few != many {
		t.Errorf("one endpoint changes: %v allocations at 100 Services, %v at 10,000", few, many)
	}
}

// BenchmarkOneEndpoint measures a change at 100 and at 10,000 Services.
func BenchmarkOneEndpoint(b *testing.B) {
	const batch = 100
	rounds := []func(){turning(b, 100), turning(b, 10_000)}
	took := make([][]time.Duration, len(rounds))
	for b.Loop() {
		for i, change := range rounds {
			began := time.Now()
			for range batch {
				change()
			}
			took[i] = append(took[i], time.Since(began)/batch)
		}
	}
	few, many := median(took[0]), median(took[1])
	b.ReportMetric(0, "ns/op") // the time of both together has no meaning
	b.ReportMetric(float64(few.Nanoseconds()), "ns/of100")
	b.ReportMetric(float64(many.Nanoseconds()), "ns/of10k")
	b.ReportMetric(float64(many)/float64(few), "x-of100(≤1.3)")
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// sliceOf returns the slice of the i-th Service of fill, with n endpoints.
func sliceOf(i, n int) *discoveryv1.EndpointSlice {
	var endpoints []string
	for j := range n {
		endpoints = append(endpoints, fmt.Sprintf("10.%d.%d.%d n%d", 180+j, i/250, 1+i%250, j))
	}
	name := fmt.Sprintf("s%d", i)
	return newSlice(name+"-1", name, endpoints...)
}

// BenchmarkMemory measures the memory of a hundred thousand endpoints in ten thousand Services,
// with one dataplane that has confirmed them.
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
