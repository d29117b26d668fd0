// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/eventually"
)

// BenchmarkBesideKubeProxy serves the same Services by the real kube-proxy and by
// us, one after the other on the same empty tables, and prints what each took:
//
//	POINTSMAN_BENCH_SERVICES=10000 go test -run '^$' -bench BesideKubeProxy -timeout 1h ./plugins/iptables
//
// On nft, kube-proxy's restore takes a time that grows with the square of the chains:
// given 10,000 Services at once it was not done after 25 minutes. So of many it is given
// some at a time, and what it takes is the sum.
func BenchmarkBesideKubeProxy(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("needs root: it makes network namespaces")
	}
	n := 1000
	if text := os.Getenv("POINTSMAN_BENCH_SERVICES"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	for _, backend := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		b.Run(string(backend), func(b *testing.B) {
			g, err := netns.New()
			if err != nil {
				b.Fatal(err)
			}
			defer g.Close()
			r := race{B: b, testbed: g, backend: backend, services: racers(n), dir: b.TempDir()}
			r.answer()
			r.spy()
			r.flush()
			empty := r.latencies()
			theirs := r.theirs()
			r.flush()
			ours := r.ours()
			r.flush()
			fmt.Printf("\n%d Services with 2 endpoints each, %s backend\n\n%s\n", n, backend, compare(ours, theirs, empty))
		})
	}
}

// A race is what both run on.
type race struct {
	*testing.B
	testbed  *netns.Testbed
	backend  iptables.Backend
	services []sdk.Service
	dir      string // of the spy
}

// A result is what one of them took.
type result struct {
	full, fullCPU time.Duration
	one, oneCPU   time.Duration
	bytes         int
	rss           int // KiB
	steps         int // in which it was given the Services, if not at once
	latency       map[string][2]time.Duration
}

// racers are n Services; the first, the middle and the last lead to the one
// endpoint that really answers.
func racers(n int) []sdk.Service {
	services := cluster(n, func(i int) netip.Addr { return v4(base + uint32(i) + 1) })
	for i := range services {
		services[i].Cluster = append(services[i].Cluster, sdk.Endpoint{Addr: netip.AddrPortFrom(v4(10<<24|181<<16|uint32(i)), 8080)})
	}
	for _, i := range []int{0, n / 2, n - 1} {
		services[i].Cluster = []sdk.Endpoint{{Addr: answering}}
	}
	return services
}

var answering = netip.MustParseAddrPort("10.180.1.1:8080")

// targets are where connections go.
func (r race) targets() map[string]netip.AddrPort {
	to := map[string]netip.AddrPort{"no Service": answering}
	for name, i := range map[string]int{"the first": 0, "the middle one": len(r.services) / 2, "the last": len(r.services) - 1} {
		to[name] = r.services[i].Frontends[0].Addr
	}
	return to
}

// answer makes the one endpoint answer.
func (r race) answer() {
	host, err := r.testbed.Host(answering.Addr())
	if err != nil {
		r.Fatal(err)
	}
	closer, err := netns.Answer(context.Background(), host, sdk.TCP, answering)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { closer.Close() })
}

// latencies are the median and the 99th percentile of the time that a connection
// takes to be open.
func (r race) latencies() map[string][2]time.Duration {
	from := netip.MustParseAddr("10.180.0.9")
	host, err := r.testbed.Host(from)
	if err != nil {
		r.Fatal(err)
	}
	all := make(map[string][2]time.Duration)
	for name, to := range r.targets() {
		var took []time.Duration
		for range 1000 {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			began := time.Now()
			conn, err := host.Dial(ctx, "tcp4", from, to)
			if err == nil {
				took = append(took, time.Since(began))
				conn.Close()
			}
			cancel()
			if err != nil {
				break // nothing serves it, as on empty tables
			}
		}
		if len(took) == 1000 {
			slices.Sort(took)
			all[name] = [2]time.Duration{took[500], took[990]}
		}
	}
	return all
}

func (r race) flush() {
	for _, program := range []string{"iptables-", "ip6tables-"} {
		for _, table := range []string{"nat", "filter", "mangle"} {
			for _, verb := range []string{"-F", "-X"} {
				if out, err := exec.Command(program+string(r.backend), "-t", table, verb).CombinedOutput(); err != nil {
					r.Fatalf("%s %s: %s", table, verb, out)
				}
			}
		}
	}
}

// spy counts the bytes that restores are handed while the file "on" is there.
func (r race) spy() {
	for _, name := range []string{"iptables-", "ip6tables-"} {
		name += string(r.backend) + "-restore"
		real, err := exec.LookPath(name)
		if err != nil {
			r.Fatal(err)
		}
		script := fmt.Sprintf("#!/bin/sh\nif [ -e %[1]s/on ]; then cat >%[1]s/in.$$; wc -c <%[1]s/in.$$ >>%[1]s/bytes; exec %[2]s \"$@\" <%[1]s/in.$$; fi\nexec %[2]s \"$@\"\n", r.dir, real)
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(script), 0o755); err != nil {
			r.Fatal(err)
		}
	}
	r.Setenv("PATH", r.dir+":"+os.Getenv("PATH"))
}

// spied is how many bytes were handed over while f ran.
func (r race) spied(f func()) int {
	on := filepath.Join(r.dir, "on")
	_ = os.Remove(filepath.Join(r.dir, "bytes"))
	if err := os.WriteFile(on, nil, 0o600); err != nil {
		r.Fatal(err)
	}
	f()
	_ = os.Remove(on)
	text, _ := os.ReadFile(filepath.Join(r.dir, "bytes"))
	sum := 0
	for _, line := range strings.Fields(string(text)) {
		n, _ := strconv.Atoi(line)
		sum += n
	}
	return sum
}

const changes = 5

// changed is a Service of which one endpoint is gone.
func (r race) changed(i int) sdk.Service {
	svc := r.services[len(r.services)/4+i]
	svc.Cluster = svc.Cluster[:1]
	return svc
}

// plugin is a dataplane of ours that is Active.
func (r race) plugin() *plugin {
	p := New(r.dir).(*plugin)
	r.Cleanup(func() { p.Close() })
	ctx := context.Background()
	if _, err := p.Configure(ctx, sdk.Setup{Options: []byte(`{"backend":"` + string(r.backend) + `"}`)}); err != nil {
		r.Fatal(err)
	}
	if err := p.SetRole(ctx, sdk.Active); err != nil {
		r.Fatal(err)
	}
	return p
}

func (r race) sync(p *plugin, u sdk.Update) {
	if result, err := p.Sync(context.Background(), u); err != nil || len(result.Failed) > 0 {
		r.Fatal(err, result)
	}
}

// everything is the first update of all Services.
func (r race) everything() sdk.Update {
	return sdk.Update{Full: true, To: 1, Set: r.services, Node: &sdk.Node{
		Name: "n1", Addrs: []netip.Addr{v4(192<<24 | 2<<8 | 10)}, MasqueradeBit: 14,
		NodePorts: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")},
		Pods:      sdk.Pods{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.180.0.0/16")}},
	}}
}

func (r race) ours() result {
	var res result
	p := r.plugin()
	began, cpu := time.Now(), usedByUs()
	r.sync(p, r.everything())
	res.full, res.fullCPU = time.Since(began), usedByUs()-cpu
	began, cpu = time.Now(), usedByUs()
	for i := range changes {
		r.sync(p, sdk.Update{From: uint64(1 + i), To: uint64(2 + i), Set: []sdk.Service{r.changed(i)}})
	}
	res.one, res.oneCPU = time.Since(began)/changes, (usedByUs()-cpu)/changes
	res.bytes = r.spied(func() {
		r.sync(p, sdk.Update{From: 1 + changes, To: 2 + changes, Set: []sdk.Service{r.changed(changes)}})
	})
	res.latency = r.latencies()
	return res
}

func (r race) theirs() result {
	var res result
	first := len(r.services)
	if r.backend == iptables.NFT && first > atOnceTheirs {
		first = stepTheirs
	}
	api, url := serveAPI(r, r.services[:first])
	process, metrics, stop := kubeProxy(r, r.backend, url, "iptables")
	defer stop()
	r.wait(metrics, wholly, 1)
	for ; first < len(r.services); first += stepTheirs {
		res.steps++
		_, n := measured(metrics, partly)
		api.add(first, r.services[first:min(first+stepTheirs, len(r.services))])
		r.wait(metrics, partly, n+1)
		r.settled(metrics)
	}
	full, _ := measured(metrics, wholly)
	before, n := measured(metrics, partly)
	res.full, res.fullCPU = full+before, usedBy(process.Pid)
	cpu := usedBy(process.Pid)
	for i := range changes {
		api.endpoints(r.changed(i))
		r.wait(metrics, partly, n+i+1)
	}
	after, m := measured(metrics, partly)
	res.one, res.oneCPU = (after-before)/time.Duration(m-n), (usedBy(process.Pid)-cpu)/changes
	res.bytes = r.spied(func() {
		api.endpoints(r.changed(changes))
		r.wait(metrics, partly, m+1)
	})
	res.rss = rss(process.Pid)
	res.latency = r.latencies()
	return res
}

const (
	wholly = "kubeproxy_sync_full_proxy_rules_duration_seconds"
	partly = "kubeproxy_sync_partial_proxy_rules_duration_seconds"

	atOnceTheirs = 5000 // so many Services kube-proxy is given at once on nft
	stepTheirs   = 500  // of more, so many at a time
)

// settled waits until kube-proxy has nothing left to do.
func (r race) settled(url string) {
	for _, what := range []string{"service", "endpoint"} {
		metric := "kubeproxy_sync_proxy_rules_" + what + "_changes_pending"
		eventually.TrueWithin(r, 10*time.Minute, "kube-proxy gets done: "+metric, func() bool { return gauge(url, metric) == 0 })
	}
}

// wait waits until kube-proxy says that it did something n times.
func (r race) wait(url, metric string, n int) {
	eventually.TrueWithin(r, 40*time.Minute, "kube-proxy gets done: "+metric, func() bool {
		_, count := measured(url, metric)
		return count >= n
	})
}
