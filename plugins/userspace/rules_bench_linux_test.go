// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
)

// BenchmarkRules says what rules cost on a kernel: until all Services are served,
// until one change is, and from a caller's first packet to its first answer. Run
// it as root: go test -run '^$' -bench BenchmarkRules -benchtime 20x.
func BenchmarkRules(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("needs root: it writes to a kernel's tables, in a namespace of its own")
	}
	g, err := netns.New()
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	if err := g.Own(netip.MustParseAddr(nodeAddr)); err != nil {
		b.Fatal(err)
	}
	pod, err := g.Host(netip.MustParseAddr(podHere))
	if err != nil {
		b.Fatal(err)
	}
	end, err := netns.Answer(b.Context(), pod, sdk.TCP, netip.MustParseAddrPort(podHere+":8080"))
	if err != nil {
		b.Fatal(err)
	}
	defer end.Close()
	caller, err := g.Host(netip.MustParseAddr(outsider))
	if err != nil {
		b.Fatal(err)
	}
	for _, backend := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		for _, n := range []int{10, 1000, 10000} {
			if _, err := iptables.Open(b.Context(), sdk.IPv4, backend); err == nil {
				b.Run(fmt.Sprintf("%s/%d", backend, n), func(b *testing.B) { benchmarkRules(b, backend, n, caller) })
			}
		}
	}
}

func benchmarkRules(b *testing.B, backend iptables.Backend, n int, caller *netns.Host) {
	d := newPlugin(b.TempDir())
	defer d.Close()
	defer func() { _, _ = d.Cleanup(b.Context(), sdk.Leftovers{}) }()
	if _, err := d.Configure(b.Context(), sdk.Setup{Options: fmt.Appendf(nil, `{"redirect": "always", "backend": %q}`, backend)}); err != nil {
		b.Fatal(err)
	}
	rev := uint64(0)
	sync := func(u sdk.Update) time.Duration {
		b.Helper()
		began := time.Now()
		if !u.Full {
			u.From = rev
		}
		rev++
		u.To = rev
		if r, err := d.Sync(b.Context(), u); err != nil || len(r.Failed) > 0 {
			b.Fatal(r.Failed, err)
		}
		return time.Since(began)
	}
	node := bigNode()
	node.Addrs = addrs(nodeAddr)
	services := change(manyServices(n, sparse), func(s *sdk.Service) { s.Cluster[0].Addr = netip.MustParseAddrPort(podHere + ":8080") })
	if err := d.SetRole(b.Context(), sdk.Active); err != nil {
		b.Fatal(err)
	}
	loaded := sync(sdk.Update{Full: true, Node: &node, Set: services})
	var changed, answered time.Duration
	for i := 0; b.Loop(); i++ {
		svc := services[(i*7919+n/2)%n]
		gone := svc
		gone.Cluster = nil
		changed += sync(sdk.Update{Set: []sdk.Service{gone}}) + sync(sdk.Update{Set: []sdk.Service{svc}})
		began := time.Now()
		conn, err := caller.Dial(b.Context(), "tcp", netip.MustParseAddr(outsider), svc.Frontends[0].Addr)
		if err != nil {
			b.Fatal(err)
		}
		answered += time.Since(began)
		conn.Close()
	}
	b.ReportMetric(float64(loaded.Milliseconds()), "ms/load")
	b.ReportMetric(float64(changed.Microseconds())/float64(2*b.N)/1000, "ms/change")
	b.ReportMetric(float64(answered.Microseconds())/float64(b.N), "µs/dial")
	b.ReportMetric(0, "ns/op")
}
