// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// The benchmarks hold the relay against HAProxy (mode tcp, one thread) and against
// a direct connection, in one run. Both relays are processes of their own on the
// first core; callers and the endpoint are in the test's, on the others. They need
// taskset, and haproxy for its part.

// A benchRound is what one rival did in a moment: how much a second, how much a second
// of its own processor time, and how long the slowest of a hundred took.
type benchRound struct{ rate, perCPU, p99 float64 }

// Each rival has the machine for a moment, one after the other, several times: so
// that whatever else it is doing troubles all of them.
const (
	moment = 400 * time.Millisecond
	rounds = 7
)

// compare reports the medians of what rivals do, and ratios of one round.
func compare(b *testing.B, unit string, all []rival, do func(r rival) benchRound) {
	b.Helper()
	seen := make(map[string][]benchRound)
	for b.Loop() {
		for range rounds {
			for _, r := range all {
				cpu, began := cpuOf(b, r.pid), time.Now()
				round := do(r)
				round.perCPU = round.rate * time.Since(began).Seconds() / max(cpuOf(b, r.pid)-cpu, 1e-9)
				seen[r.name] = append(seen[r.name], round)
			}
		}
	}
	ratio := func(of func(benchRound) float64, to string) float64 {
		var ratios []float64
		for i, round := range seen["pointsman"] {
			ratios = append(ratios, of(round)/of(seen[to][i]))
		}
		slices.Sort(ratios)
		return ratios[len(ratios)/2]
	}
	rate := func(t benchRound) float64 { return t.rate }
	late := func(t benchRound) float64 { return t.p99 }
	for _, r := range all[1:] {
		ofRival := slices.Clone(seen[r.name])
		slices.SortFunc(ofRival, func(x, y benchRound) int { return cmp.Compare(x.rate, y.rate) })
		b.ReportMetric(ofRival[len(ofRival)/2].rate, r.name+"-"+unit+"/s")
	}
	b.ReportMetric(ratio(rate, "direct"), "x-direct")
	if len(all) > 2 {
		b.ReportMetric(ratio(rate, "haproxy"), "x-haproxy")
		b.ReportMetric(ratio(func(t benchRound) float64 { return t.perCPU }, "haproxy"), "x-haproxy-per-cpu")
		if seen["haproxy"][0].p99 > 0 {
			b.ReportMetric(ratio(late, "haproxy"), "x-haproxy-p99")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRelayRequests: requests on 32 connections that are kept. The goal is
// 0.95 of HAProxy.
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
	compare(b, "requests", all, func(r rival) benchRound {
		return busy(b, 32, func(i int) error { return askBench(conns[r.name][i], make([]byte, len(request))) })
	})
}

// BenchmarkRelayConnections: connections with one request each, 16 at a time. The
// goal is 0.85 of HAProxy.
func BenchmarkRelayConnections(b *testing.B) {
	compare(b, "connections", rivals(b, benchEndpoint(b)), func(r rival) benchRound {
		return busy(b, 16, func(int) error {
			c := benchDial(b, r.front, "e")
			defer abort(c) // or the callers' ports run out
			return askBench(c, make([]byte, len(request)))
		})
	})
}

// busy has callers do things for a moment.
func busy(b *testing.B, callers int, do func(caller int) error) benchRound {
	b.Helper()
	took := make([][]time.Duration, callers)
	began := time.Now()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for time.Since(began) < moment {
				at := time.Now()
				if err := do(i); err != nil {
					b.Error(err)
					return
				}
				took[i] = append(took[i], time.Since(at))
			}
		})
	}
	all.Wait()
	elapsed := time.Since(began)
	times := slices.Concat(took...)
	if len(times) == 0 {
		b.Fatal("nothing was done")
	}
	slices.Sort(times)
	return benchRound{rate: float64(len(times)) / elapsed.Seconds(), p99: times[len(times)*99/100].Seconds()}
}

// BenchmarkRelayBulk: megabytes that one connection brings. The goal is what
// HAProxy does.
func BenchmarkRelayBulk(b *testing.B) {
	all := rivals(b, benchEndpoint(b))
	buf := make([]byte, 1<<20)
	compare(b, "MB", all, func(r rival) benchRound {
		c := benchDial(b, r.front, "b")
		defer c.Close()
		began := time.Now()
		n := 0
		for ; time.Since(began) < moment; n++ {
			if _, err := io.ReadFull(c, buf); err != nil {
				b.Fatal(err)
			}
		}
		return benchRound{rate: float64(n) / time.Since(began).Seconds()}
	})
}

// BenchmarkRelayIdle: what each of a thousand connections costs that have been used
// once, and wait.
func BenchmarkRelayIdle(b *testing.B) {
	const many = 1000
	all := rivals(b, benchEndpoint(b))
	for b.Loop() {
		for _, r := range all[1:] {
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
