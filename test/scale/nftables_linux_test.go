// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/test/cluster"
)

const (
	middle  = services / 2 // the Service that is called
	changes = 6000         // of other Services, 100 a second for a minute
	writers = 8            // that write them: an API server takes its time

	// Two endpoints of the Service that is called: one accepts calls, the other refuses them.
	listens, refuses = "10.200.0.1", "10.200.0.2"
)

// BenchmarkNftablesBesideKubeProxy is what each costs that serves the same 10,000 Services of
// two endpoints from the same API server by nftables.
func BenchmarkNftablesBesideKubeProxy(b *testing.B) {
	w := newWorld(b)
	for b.Loop() {
		theirs := w.kubeProxy(b)
		ours := w.pointsman(b)
		for name, cost := range theirs {
			b.ReportMetric(cost, name+"/kube-proxy")
			b.ReportMetric(ours[name], name+"/pointsman")
		}
		b.ReportMetric(theirs["s-load"]/ours["s-load"], "x-load(≥100)")
		b.ReportMetric(theirs["s-start"]/ours["s-start"], "x-start")
		b.ReportMetric(theirs["ms-change"]/ours["ms-change"], "x-change(≥500)")
		b.ReportMetric(ours["MB"]/theirs["MB"], "x-memory(≤0.5)")
		b.ReportMetric(ours["cpu-s"]/theirs["cpu-s"], "x-cpu(≤0.02)")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSwapToNftables is how long 10,000 Services take from the command until the canary
// passed, from iptables to nftables.
func BenchmarkSwapToNftables(b *testing.B) {
	w := newWorld(b)
	for b.Loop() {
		hosts, client := hostCommand(b, apiServer(w.cluster), "iptables")
		end := start(b, hosts())
		untilServed(b, client, services, 0)
		began := time.Now()
		if _, err := client.SwapMode(b.Context(), admin.SwapAsk{To: "nftables"}); err != nil {
			b.Fatal(err)
		}
		until(b, "the swap", func() bool {
			mode, err := client.Mode(b.Context())
			if mode.Last != nil && mode.Last.Error != "" {
				b.Fatal(mode.Last.Error)
			}
			return err == nil && (mode.Last != nil || mode.Swap != nil && mode.Swap.Moved())
		})
		b.ReportMetric(time.Since(began).Seconds(), "s-swap(≤3)")
		end()
		run(b, "nft", "flush", "ruleset")
	}
	b.ReportMetric(0, "ns/op")
}

// A world is a cluster with 10,000 Services, and a node on which one of them can be called.
type world struct {
	cluster *cluster.Cluster
	kube    kubernetes.Interface
	churned int // how often: each time brings other endpoints
}

func newWorld(b *testing.B) *world {
	b.Helper()
	if os.Getuid() != 0 {
		b.Skip("needs root: a dataplane writes rules")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		b.Skip("needs nft, which kube-proxy runs: apt-get install nftables")
	}
	run(b, "ip", "link", "set", "lo", "up")
	run(b, "ip", "route", "replace", "10.97.0.0/16", "dev", "lo")
	for _, addr := range []string{listens, refuses} {
		run(b, "ip", "addr", "replace", addr+"/32", "dev", "lo")
	}
	w := &world{cluster: cluster.Start(b, cluster.Options{})}
	w.cluster.Load(objects(services, 2)...)
	config, err := clientcmd.BuildConfigFromFlags("", w.cluster.Kubeconfig(cluster.Token(cluster.Admin), ""))
	if err != nil {
		b.Fatal(err)
	}
	config.QPS = -1
	if w.kube, err = kubernetes.NewForConfig(config); err != nil {
		b.Fatal(err)
	}
	for i := range 100 { // the API server changes nothing in a namespace that is not there
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: service(i).Namespace}}
		if _, err := w.kube.CoreV1().Namespaces().Create(b.Context(), space, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	accept(b)
	return w
}

// accept ends each call to the endpoint that accepts them.
func accept(b *testing.B) {
	b.Helper()
	l, err := net.Listen("tcp", listens+":8080")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
}

func (w *world) kubeProxy(b *testing.B) map[string]float64 {
	b.Helper()
	cmd := kubeProxyCommand(b, w.cluster, "nftables")
	return w.costs(b, cmd, func() []int {
		until(b, "kube-proxy's first sync", kubeProxyServes)
		return []int{cmd.Process.Pid}
	})
}

func (w *world) pointsman(b *testing.B) map[string]float64 {
	b.Helper()
	hosts, client := hostCommand(b, apiServer(w.cluster), "nftables")
	return w.costs(b, hosts(), func() []int {
		s := untilServed(b, client, services, 0)
		return []int{s.Host.PID, s.Dataplane.PID}
	})
}

// costs runs a proxy and measures it; served waits until it serves all, and returns its processes.
func (w *world) costs(b *testing.B, cmd *exec.Cmd, served func() []int) map[string]float64 {
	b.Helper()
	began := time.Now()
	end := start(b, cmd)
	defer run(b, "nft", "flush", "ruleset")
	defer end()
	processes := served()
	costs := map[string]float64{
		"s-start": time.Since(began).Seconds(),
		"s-load":  metric(`kubeproxy_sync_full_proxy_rules_duration_seconds_sum{ip_family="IPv4"}`),
	}
	time.Sleep(settling)
	for _, pid := range processes {
		costs["MB"] += megabytes(b, pid, "smaps_rollup", "Pss:")
	}
	var took []time.Duration
	for i := range 6 {
		took = append(took, w.move(b, i%2 == 0))
		time.Sleep(time.Second) // kube-proxy waits as long between two syncs
	}
	slices.Sort(took)
	costs["ms-change"] = took[len(took)/2].Seconds() * 1000

	before, began := used(b, processes), time.Now()
	w.churn(b)
	costs["changes/s"] = changes / time.Since(began).Seconds()
	w.move(b, true) // what was written before it has reached the kernel too
	costs["cpu-s"] = used(b, processes) - before
	return costs
}

// move gives the middle Service its other endpoint. It returns how long after the answer of the
// API server a call gets there.
func (w *world) move(b *testing.B, answered bool) time.Duration {
	b.Helper()
	endpoint := refuses
	if answered {
		endpoint = listens
	}
	if err := w.write(b, middle, endpoint); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	addr := net.JoinHostPort(service(middle).Spec.ClusterIP, "80")
	for {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		took := time.Since(began)
		if err == nil {
			conn.Close()
		}
		if (err == nil) == answered {
			return took
		}
		if took > timeout {
			b.Fatalf("%s is not served by %s: %v", addr, endpoint, err)
		}
		time.Sleep(max(200*time.Microsecond, took/100))
	}
}

// churn gives other Services another endpoint each, a hundred a second for a minute.
func (w *world) churn(b *testing.B) {
	b.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	due := make(chan int)
	w.churned++
	var all sync.WaitGroup
	for range writers {
		all.Go(func() { // ends with due
			for i := range due {
				if err := w.write(b, i, fmt.Sprintf("10.%d.%d.%d", 200+w.churned, i/250, 1+i%250)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range changes {
		<-ticker.C
		due <- (middle + 1 + i) % services
	}
	close(due)
	all.Wait()
}

// write gives the i-th Service one endpoint.
func (w *world) write(b *testing.B, i int, addr string) error {
	s := slice(i, 0)
	patch := fmt.Appendf(nil, `{"endpoints":[{"addresses":[%q],"conditions":{"ready":true}}]}`, addr)
	_, err := w.kube.DiscoveryV1().EndpointSlices(s.Namespace).Patch(b.Context(), s.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// used is how many seconds processes worked, and the programs that they ran.
func used(b *testing.B, processes []int) (seconds float64) {
	b.Helper()
	for _, pid := range processes {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		for _, field := range strings.Fields(rest)[11:15] { // utime, stime, cutime, cstime
			ticks, _ := strconv.ParseFloat(field, 64)
			seconds += ticks / 100
		}
	}
	return seconds
}
