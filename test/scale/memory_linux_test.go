// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/built"
	"github.com/pointsman/pointsman/test/cluster"
	"github.com/pointsman/pointsman/test/eventually"
)

func TestMain(m *testing.M) { netns.Main(m) }

const (
	services = 10_000
	timeout  = 5 * time.Minute
	settling = 10 * time.Second // to come to rest; kube-proxy has as much after three minutes
)

// BenchmarkMemoryBesideKubeProxy is what each has resident that serves the same
// 10,000 Services of two endpoints, or of ten, from the same API server by
// iptables-legacy: at most on the way there, and when it is at rest.
func BenchmarkMemoryBesideKubeProxy(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("needs root: kube-proxy writes rules")
	}
	run(b, "ip", "link", "set", "lo", "up")
	for _, endpoints := range []int{2, 10} {
		b.Run(fmt.Sprint("10000x", endpoints), func(b *testing.B) {
			c := cluster.Start(b, cluster.Options{})
			c.Load(objects(services, endpoints)...)
			besideKubeProxy(b, c)
		})
	}
}

func besideKubeProxy(b *testing.B, c *cluster.Cluster) {
	for b.Loop() {
		peer := kubeProxy(b, c)
		b.ReportMetric(peer.most, "MB/kube-proxy-most")
		b.ReportMetric(peer.rest, "MB/kube-proxy")
		host, plugin := pointsman(b, c, "iptables")
		b.ReportMetric(host.most, "MB/host-most")
		b.ReportMetric(host.rest, "MB/host")
		b.ReportMetric(plugin.most, "MB/plugin-most")
		b.ReportMetric(plugin.rest, "MB/plugin")
		b.ReportMetric(host.rest/peer.rest, "x-host(≤0.6)")
		b.ReportMetric((host.rest+plugin.rest)/peer.rest, "x-both(≤1)")
		b.ReportMetric((host.most+plugin.most)/peer.most, "x-both-most")
	}
	b.ReportMetric(0, "ns/op")
}

func objects(services, endpoints int) []metav1.Object {
	all := []metav1.Object{&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n0"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.10"}}},
	}}
	for i := range services {
		all = append(all, service(i), slice(i, endpoints))
	}
	return all
}

func service(i int) *corev1.Service {
	addr := fmt.Sprintf("10.97.%d.%d", i/250, 1+i%250)
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("namespace-%d", i%100), Name: fmt.Sprintf("service-%d", i), Labels: map[string]string{"app.kubernetes.io/name": fmt.Sprintf("app-%d", i)}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: addr, ClusterIPs: []string{addr},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
			InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster), SessionAffinity: corev1.ServiceAffinityNone,
			Selector: map[string]string{"app.kubernetes.io/name": fmt.Sprintf("app-%d", i)},
			Ports:    []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

func slice(i, endpoints int) *discoveryv1.EndpointSlice {
	s := service(i)
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name + "-abcde",
			Labels: map[string]string{discoveryv1.LabelServiceName: s.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(8080))}},
	}
	for j := range endpoints {
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", 128+j, i/250, 1+i%250)},
			NodeName:   ptr.To(fmt.Sprintf("n%d", j)),
			Zone:       ptr.To("zone-1"),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: s.Namespace, Name: fmt.Sprintf("%s-%d", s.Name, j), UID: "1c2bb2b9-5e0c-4a4a-9c5e-6d8a2e0d6c3f"},
		})
	}
	return out
}

// A size is what a process had resident, in MB.
type size struct{ most, rest float64 }

func measure(b *testing.B, pid int) size {
	b.Helper()
	return size{most: megabytes(b, pid, "status", "VmHWM:"), rest: megabytes(b, pid, "status", "VmRSS:")}
}

// kubeProxy runs kube-proxy until its first sync is done.
func kubeProxy(b *testing.B, c *cluster.Cluster) size {
	b.Helper()
	cmd := kubeProxyCommand(b, c, "iptables")
	cmd.Env = append(os.Environ(), "PATH="+legacy(b)+":"+os.Getenv("PATH"))
	end := start(b, cmd)
	defer flush(b, cmd.Env)
	defer end()
	until(b, "kube-proxy's first sync", kubeProxyServes)
	time.Sleep(settling)
	return measure(b, cmd.Process.Pid)
}

func kubeProxyCommand(b *testing.B, c *cluster.Cluster, mode string) *exec.Cmd {
	b.Helper()
	return exec.Command(filepath.Join("..", "..", "bin", "peers", "kube-proxy"), "--proxy-mode="+mode, "--hostname-override=n0",
		"--kubeconfig="+c.Kubeconfig(cluster.Token(cluster.Admin), ""), "--conntrack-max-per-core=0", "--cluster-cidr=10.128.0.0/9")
}

func kubeProxyServes() bool {
	return metric("kubeproxy_sync_proxy_rules_last_timestamp_seconds") > 0 && metric("kubeproxy_sync_full_proxy_rules_duration_seconds_count") > 0
}

// legacy is a folder in which iptables is the legacy one: in the other, a first
// sync of kube-proxy takes longer than a user waits.
func legacy(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		if err := os.Symlink("/usr/sbin/xtables-legacy-multi", filepath.Join(dir, name)); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

// flush takes away what kube-proxy leaves: reading it is not to be measured.
func flush(b *testing.B, env []string) {
	b.Helper()
	for _, restore := range []string{"iptables-restore", "ip6tables-restore"} {
		cmd := exec.Command("/usr/sbin/xtables-legacy-multi", restore)
		cmd.Env = env
		cmd.Stdin = strings.NewReader("*nat\nCOMMIT\n*filter\nCOMMIT\n*mangle\nCOMMIT\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%s: %v: %s", restore, err, out)
		}
	}
}

func metric(name string) float64 {
	answer, err := http.Get("http://127.0.0.1:10249/metrics")
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 2 && strings.HasPrefix(words[0], name) {
			v, _ := strconv.ParseFloat(words[1], 64)
			return v
		}
	}
	return 0
}

// pointsman runs the host and its plugin until all is served.
func pointsman(b *testing.B, c *cluster.Cluster, mode string) (host, plugin size) {
	b.Helper()
	hosts, client := hostCommand(b, apiServer(c), mode)
	cmd := hosts()
	cmd.Env = append(os.Environ(), "PATH="+legacy(b)+":"+os.Getenv("PATH"))
	end := start(b, cmd)
	defer end()
	s := untilServed(b, client, services, 0)
	time.Sleep(settling)
	return measure(b, s.Host.PID), measure(b, s.Dataplane.PID)
}

// hostCommand returns what makes a command that runs a host, and a client of that.
func hostCommand(b *testing.B, source, mode string) (func() *exec.Cmd, *admin.Client) {
	b.Helper()
	dir := b.TempDir()
	programs := []string{"./host/pointsman"}
	for _, mode := range []string{"iptables", "nftables", "userspace", "ipvs"} {
		programs = append(programs, fmt.Sprintf("./plugins/%[1]s/pointsman-dataplane-%[1]s", mode))
	}
	if err := built.Into(dir, "", programs...); err != nil {
		b.Fatal(err)
	}
	config := filepath.Join(dir, "host.yaml")
	text := fmt.Sprintf(`apiVersion: pointsman.dev/v1alpha1
kind: HostConfig
mode: %s
hostnameOverride: n0
source: %s
adminSocket: %[3]s/admin.sock
stateDir: %[3]s/state
healthzBindAddress: ""
metricsBindAddress: 127.0.0.1:10249
oomScoreAdj: 0
`, mode, source, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return func() *exec.Cmd {
		return exec.Command(filepath.Join(dir, "pointsman"), "run", "--config", config, "--plugin-dir", dir)
	}, admin.NewClient(filepath.Join(dir, "admin.sock"))
}

// start starts cmd; end interrupts it and waits.
func start(b *testing.B, cmd *exec.Cmd) (end func()) {
	b.Helper()
	log, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if b.Failed() {
			text, _ := os.ReadFile(log.Name())
			b.Logf("%.8000s", text)
		}
		log.Close()
	}
}

func run(b *testing.B, name string, args ...string) {
	b.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		b.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}

func until(b *testing.B, what string, done func() bool) {
	b.Helper()
	eventually.TrueWithin(b, timeout, what, done)
}

// megabytes is a field of a process's file in /proc.
func megabytes(b *testing.B, pid int, file, field string) float64 {
	b.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == field {
			kb, _ := strconv.ParseFloat(words[1], 64)
			return kb * 1024 / 1e6
		}
	}
	b.Fatalf("process %d has no %s", pid, field)
	return 0
}

// apiServer returns the source of a host that watches an API server.
func apiServer(c *cluster.Cluster) string {
	return fmt.Sprintf("{kubernetes: {kubeconfig: %s}}", c.Kubeconfig(cluster.Token(cluster.Admin), ""))
}
