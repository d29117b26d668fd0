// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/field"
	"github.com/pointsman/pointsman/test/traffic"
)

// A scaleBench is a dataplane that is loaded with few and many Services in turn. The benchmark changes the first
// Service and dials it from a pod.
type scaleBench struct {
	*testing.B
	plugin   sdk.Dataplane
	pod      *netns.Host
	revision uint64
}

// BenchmarkFlat compares the time of one change and of one connection among 44,000 Services with that among few. The
// sizes alternate, so that other work of the machine affects all of them.
func BenchmarkFlat(b *testing.B) {
	f := newScaleBench(b)
	figures := make(map[string][]float64)
	add := func(name string, figure float64) { figures[name] = append(figures[name], figure) }
	for b.Loop() {
		for range 5 {
			f.load(several(1, 1))
			alone := f.connect()
			f.load(several(1000, 1))
			few := f.change()
			all := several(44_000, 1)
			began := time.Now()
			f.load(all)
			add("s-load(≤2)", time.Since(began).Seconds())
			add("µs-change/1000", float64(few.Microseconds()))
			add("µs-connect/1", float64(alone.Microseconds()))
			add("x-change(≤1.2)", float64(f.change())/float64(few))
			add("x-connect-p50(≤1.5)", float64(f.connect())/float64(alone))
		}
	}
	for name, all := range figures {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name)
	}
	b.ReportMetric(0, "ns/op")
}

func newScaleBench(b *testing.B) *scaleBench {
	b.Helper()
	g := field.Testbed(b)
	far, err := g.Host(answering.Addr())
	if err != nil {
		b.Fatal(err)
	}
	closer, err := netns.Answer(b.Context(), far, sdk.TCP, answering)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { closer.Close() })
	f := &scaleBench{B: b, plugin: New(b.TempDir())}
	if f.pod, err = g.Host(netip.MustParseAddr("10.180.0.9")); err != nil {
		b.Fatal(err)
	}
	if _, err := f.plugin.Configure(b.Context(), sdk.Setup{Options: []byte(`{"protect":"never"}`)}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_, _ = f.plugin.Cleanup(b.Context(), sdk.Leftovers{}) // an error does not matter: the namespace is deleted
	})
	f.load(nil)
	if err := f.plugin.SetRole(b.Context(), sdk.Active); err != nil {
		b.Fatal(err)
	}
	return f
}

// answering is the address of the endpoint that answers.
var answering = netip.MustParseAddrPort("10.180.1.1:8080")

// load replaces all Services of the table.
func (f *scaleBench) load(all []sdk.Service) {
	f.Helper()
	if len(all) > 0 {
		all[0] = firstService(answering)
	}
	f.revision++
	f.sync(sdk.Update{Full: true, To: f.revision, Set: all, Node: &sdk.Node{}})
}

// firstService returns the first Service, with one endpoint.
func firstService(endpoint netip.AddrPort) sdk.Service {
	s := several(1, 1)[0]
	s.Cluster = []sdk.Endpoint{{Addr: endpoint}}
	s.Normalize()
	return s
}

func (f *scaleBench) sync(u sdk.Update) {
	f.Helper()
	if result, err := f.plugin.Sync(f.Context(), u); err != nil || len(result.Failed) > 0 {
		f.Fatalf("sync: %v %+v", err, result)
	}
}

// change returns the median time of a change of one endpoint, from the update until the kernel has it. After the last
// change, the Service has the endpoint that answers.
func (f *scaleBench) change() time.Duration {
	f.Helper()
	took := make([]time.Duration, 501)
	for i := range took {
		one := []sdk.Service{firstService([]netip.AddrPort{answering, netip.MustParseAddrPort("10.250.0.1:8080")}[i%2])}
		began := time.Now()
		f.sync(sdk.Update{From: f.revision, To: f.revision + 1, Set: one})
		took[i] = time.Since(began)
		f.revision++
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// connect returns the median time of a pod's connection to the Service.
func (f *scaleBench) connect() time.Duration {
	f.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // without garbage collection, which is not to be measured
	took := make([]time.Duration, 3000)
	err := f.pod.Do(func() (err error) {
		for i := range took {
			if took[i], err = traffic.Opened(several(1, 1)[0].Frontends[0].Addr); err != nil {
				break
			}
		}
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	slices.Sort(took)
	return took[len(took)/2]
}
