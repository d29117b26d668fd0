// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/traffic"
)

// beforeUs are Services that a real kube-proxy serves before we come.
func beforeUs(node sdk.Node) sdktest.Scenario {
	s := sdktest.Scenario{Node: node}
	port := sdk.Frontend{Kind: sdk.NodePort, Policy: sdk.Cluster, Addr: netip.MustParseAddrPort("0.0.0.0:30080")}
	near := sdk.Endpoint{Addr: netip.MustParseAddrPort("10.180.0.1:8080"), OnNode: true}
	far := sdk.Endpoint{Addr: netip.MustParseAddrPort("10.180.1.1:8080")}
	clusterIP := func(addr string) sdk.Frontend {
		return sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.MustParseAddrPort(addr)}
	}
	for i, frontends := range [][]sdk.Frontend{
		{clusterIP("172.30.0.41:80"), port},
		{clusterIP("172.30.0.42:80")}, // sticky
		{clusterIP("172.30.0.43:80")}, // it has no endpoint
	} {
		svc := service(i, frontends...)
		svc.Cluster, svc.Local = []sdk.Endpoint{near, far}, []sdk.Endpoint{near}
		switch i {
		case 1:
			svc.Affinity = 3 * time.Hour
		case 2:
			svc.Cluster, svc.Local = nil, nil
		}
		s.Services = append(s.Services, svc)
	}
	return s
}

// Our first update replaces the rules of the real kube-proxy while connections come
// in all the time, and none fails. Nothing that was its alone is left.
func TestKernelTakesOverFromKubeProxy(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		s, left := g.Place(beforeUs(scenario(k.T, "node-port").Node))
		if len(left) > 0 {
			k.Fatal(left)
		}
		url := serveAPI(k, s.Services)
		_, _, stop := kubeProxy(k, k.backend, url, "iptables")
		stage, err := g.Open(k.Context(), nil, s)
		if err != nil {
			k.Fatal(err)
		}
		defer stage.Close()
		for i := range s.Services {
			s.Services[i] = asNode(s.Services[i])
		}
		callers := []caller{
			{"198.18.0.7", "192.0.2.10:30080"}, {"10.180.0.9", "172.30.0.41:80"}, {"10.180.0.9", "172.30.0.42:80"}, {"192.0.2.10", "172.30.0.41:80"},
		}
		for _, c := range callers {
			k.eventually("kube-proxy serves "+c.to, func() bool { return c.call(k.Context(), g) == nil })
		}
		stop() // its rules stay
		finish := callAllTheTime(k, g, callers)

		p := k.start()
		k.sync(p, s.Update(1))
		if failed := finish(); failed != "" {
			k.Errorf("while it took over: %s", failed)
		}
		k.want(s, sdk.Active)
		for _, program := range []string{"iptables-", "ip6tables-"} {
			for _, table := range []string{"nat", "filter", "mangle"} {
				if rules := k.run(program+string(k.backend), "-t", table, "-S"); strings.Contains(rules, canary) {
					k.Errorf("left in %s: %s", table, rules)
				}
			}
		}
	})
}

// A caller opens connections.
type caller struct{ from, to string }

func (c caller) call(ctx context.Context, g *netns.Testbed) error {
	ctx, cancel := context.WithTimeout(ctx, traffic.Timeout)
	defer cancel()
	from := netip.MustParseAddr(c.from)
	host, err := g.Host(from)
	if err != nil {
		return err
	}
	conn, err := host.Dial(ctx, "tcp4", from, netip.MustParseAddrPort(c.to))
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(traffic.Timeout))
	_, err = conn.Read(make([]byte, 1)) // an endpoint that answers does so at once
	return err
}

// callAllTheTime opens connections without end, until finish is called, which says what
// failed.
func callAllTheTime(k kernel, g *netns.Testbed, callers []caller) (finish func() string) {
	ctx, cancel := context.WithCancel(k.Context())
	var running sync.WaitGroup
	var mu sync.Mutex
	var failed []string
	var calls atomic.Int64
	for _, c := range callers {
		running.Go(func() {
			for ctx.Err() == nil {
				err := c.call(k.Context(), g)
				calls.Add(1)
				if err != nil {
					mu.Lock()
					failed = append(failed, c.from+" to "+c.to+": "+err.Error())
					mu.Unlock()
				}
			}
		})
	}
	before := calls.Load()
	k.eventually("connections come in", func() bool { return calls.Load() > before+20 })
	return func() string {
		during := calls.Load()
		k.eventually("connections still come in", func() bool { return calls.Load() > during+20 })
		cancel()
		running.Wait()
		k.Logf("%d connections, %d failed", calls.Load(), len(failed))
		return strings.Join(failed, "\n")
	}
}

// What kube-proxy left is listed first, then removed, in whichever mode it ran; and
// what is not its or ours stays byte for byte.
func TestKernelCleansUpAfterKubeProxy(t *testing.T) {
	world(t) // it has the loopback up
	for _, proxyMode := range []string{"iptables", "nftables"} {
		t.Run(proxyMode, func(t *testing.T) {
			onKernel(t, func(k kernel) {
				k.foreign()
				clean := k.everything()
				s := beforeUs(sdk.Node{})
				url := serveAPI(k, s.Services)
				_, metrics, stop := kubeProxy(k, k.backend, url, proxyMode)
				k.eventually("kube-proxy has written its rules", func() bool {
					return synced(metrics) && strings.Contains(k.everything(), "172.30.0.41")
				})
				stop()
				dirty := k.everything()

				p := New(k.dir).(*plugin)
				named, err := p.Cleanup(k.Context(), sdk.Leftovers{KubeProxy: true, DryRun: true})
				if err != nil || len(named) == 0 {
					k.Fatalf("a dry run: %q, %v", named, err)
				}
				if now := k.everything(); now != dirty {
					k.Errorf("a dry run changed\n%s\nto\n%s", dirty, now)
				}
				gone, err := p.Cleanup(k.Context(), sdk.Leftovers{KubeProxy: true})
				if err != nil || strings.Join(gone, "\n") != strings.Join(named, "\n") {
					k.Errorf("removed %q, %v; the dry run said %q", gone, err, named)
				}
				if counting() {
					k.Error("there are accounts left")
				}
				if now := k.everything(); now != clean {
					k.Errorf("left is\n%s\nand before kube-proxy there was\n%s", now, clean)
				}
			})
		})
	}
}
