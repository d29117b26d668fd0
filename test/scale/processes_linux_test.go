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
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/built"
	"github.com/pointsman/pointsman/test/cluster"
	"github.com/pointsman/pointsman/test/eventually"
)

func TestMain(m *testing.M) { netns.Main(m) }

const timeout = 5 * time.Minute

func until(b *testing.B, what string, done func() bool) {
	b.Helper()
	eventually.TrueWithin(b, timeout, what, done)
}

func run(b *testing.B, name string, args ...string) {
	b.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		b.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}

// start starts cmd. end ends cmd and the programs that it runs.
func start(b *testing.B, cmd *exec.Cmd) (end func()) {
	b.Helper()
	log, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // iptables-restore would continue
		if b.Failed() {
			text, _ := os.ReadFile(log.Name())
			b.Logf("%.8000s", text)
		}
		log.Close()
	}
}

// hostCommand builds the programs and writes a config file, to which it appends config. It returns a function that
// returns a new command for a host, and a client of that host.
func hostCommand(b *testing.B, source, mode, config string) (newHost func() *exec.Cmd, client *admin.Client) {
	b.Helper()
	dir := b.TempDir()
	programs := []string{"./host/pointsman"}
	for _, mode := range []string{"iptables", "nftables", "userspace", "ipvs"} {
		programs = append(programs, fmt.Sprintf("./plugins/%[1]s/pointsman-dataplane-%[1]s", mode))
	}
	if err := built.Into(dir, "", programs...); err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(dir, "host.yaml")
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
	if err := os.WriteFile(file, []byte(text+config), 0o600); err != nil {
		b.Fatal(err)
	}
	return func() *exec.Cmd {
		return exec.Command(filepath.Join(dir, "pointsman"), "run", "--config", file, "--plugin-dir", dir)
	}, admin.NewClient(filepath.Join(dir, "admin.sock"))
}

// apiServer returns the config of a source that watches the API server.
func apiServer(c *cluster.Cluster) string {
	return fmt.Sprintf("{kubernetes: {kubeconfig: %s}}", c.Kubeconfig(cluster.Token(cluster.Admin), ""))
}

// samples are the values of a proxy's metrics, by name and labels.
type samples map[string]float64

// of returns the IPv4 value of a metric that kube-proxy and Pointsman both have.
func (s samples) of(name string) float64 { return s["kubeproxy_"+name+`{ip_family="IPv4"}`] }

// metrics returns the metrics of the running proxy, or an empty map if it does not answer.
func metrics() samples {
	all := make(samples)
	answer, err := http.Get("http://127.0.0.1:10249/metrics")
	if err != nil {
		return all
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[name] = number(value)
	}
	return all
}

func number(text string) float64 {
	n, _ := strconv.ParseFloat(text, 64)
	return n
}

// megabytes returns a process's proportional set size: its own memory, and its share of memory that it shares.
func megabytes(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nPss:")
	kb, _, _ := strings.Cut(rest, "kB")
	return number(strings.TrimSpace(kb)) * 1024 / 1e6
}

// cpuSeconds returns the processor time that processes and their ended children have used.
func cpuSeconds(b *testing.B, processes []int) (seconds float64) {
	b.Helper()
	for _, pid := range processes {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		for _, ticks := range strings.Fields(rest)[11:15] { // utime, stime, cutime, cstime
			seconds += number(ticks) / 100
		}
	}
	return seconds
}
