// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The benchmarks compare the relay with HAProxy (mode tcp, one thread). Both are processes of their own on the first
// processor. Clients and the endpoint are in the process of the test. The benchmarks need taskset, and haproxy for the
// comparison.

// The relays run in turn for a moment each, several times, so that other load affects all of them.
const (
	moment = 400 * time.Millisecond
	rounds = 7
)

// compare reports the median of what a relay does per second of its own processor time, and its ratio to HAProxy. do
// returns how much a relay did in about a moment.
func compare(b *testing.B, unit string, all []rival, do func(r rival) float64) {
	b.Helper()
	seen := make(map[string][]float64)
	for b.Loop() {
		for range rounds {
			for _, r := range all {
				before := cpuOf(b, r.pid)
				n := do(r)
				seen[r.name] = append(seen[r.name], n/max(cpuOf(b, r.pid)-before, 1e-9))
			}
		}
	}
	median := func(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }
	for _, r := range all {
		b.ReportMetric(median(seen[r.name]), r.name+"-"+unit+"/cpu-s")
	}
	if len(all) > 1 {
		var ratios []float64
		for i, n := range seen["pointsman"] {
			ratios = append(ratios, n/seen["haproxy"][i])
		}
		b.ReportMetric(median(ratios), "x-haproxy-per-cpu")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRelayRequests measures requests on 32 connections that stay open.
func BenchmarkRelayRequests(b *testing.B) {
	all := rivals(b, benchEndpoint(b))
	conns := make(map[string][]*net.TCPConn)
	for _, r := range all {
		for range 32 {
			c := benchDial(b, r.front, "e")
			defer c.Close()
			conns[r.name] = append(conns[r.name], c)
		}
	}
	compare(b, "requests", all, func(r rival) float64 {
		return repeat(b, 32, func(i int) error { return askBench(conns[r.name][i], make([]byte, len(request))) })
	})
}

// BenchmarkRelayConnections measures connections with one request each, 16 at a time.
func BenchmarkRelayConnections(b *testing.B) {
	compare(b, "connections", rivals(b, benchEndpoint(b)), func(r rival) float64 {
		return repeat(b, 16, func(int) error {
			c := benchDial(b, r.front, "e")
			defer abort(c) // otherwise clients run out of ports
			return askBench(c, make([]byte, len(request)))
		})
	})
}

// repeat makes clients repeat do for a moment, and returns how often they did.
func repeat(b *testing.B, clients int, do func(client int) error) float64 {
	b.Helper()
	began := time.Now()
	var n atomic.Int64
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for time.Since(began) < moment {
				if err := do(i); err != nil {
					b.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	return float64(n.Load())
}

// BenchmarkRelayBulk measures the megabytes of one connection.
func BenchmarkRelayBulk(b *testing.B) {
	all := rivals(b, benchEndpoint(b))
	buf := make([]byte, 1<<20)
	compare(b, "MB", all, func(r rival) float64 {
		c := benchDial(b, r.front, "b")
		defer c.Close()
		began := time.Now()
		n := 0
		for ; time.Since(began) < moment; n++ {
			if _, err := io.ReadFull(c, buf); err != nil {
				b.Fatal(err)
			}
		}
		return float64(n)
	})
}

// BenchmarkRelayIdle measures the descriptors and the memory of 1000 connections that wait after one request.
func BenchmarkRelayIdle(b *testing.B) {
	const many = 1000
	all := rivals(b, benchEndpoint(b))
	for b.Loop() {
		for _, r := range all {
			files, memory := using(b, r.pid)
			var conns []net.Conn
			for range many {
				c := benchDial(b, r.front, "e")
				defer c.Close()
				conns = append(conns, c)
				if err := askBench(c, make([]byte, len(request))); err != nil {
					b.Fatal(err)
				}
			}
			moreFiles, moreMemory := using(b, r.pid)
			b.ReportMetric(float64(moreFiles-files)/many, r.name+"-fds/conn")
			b.ReportMetric(float64(moreMemory-memory)/many, r.name+"-B/conn")
			for _, c := range conns {
				c.Close()
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}
