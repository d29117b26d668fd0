// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/test/cluster"
	"github.com/pointsman/pointsman/test/eventually"
)

const (
	idleTime    = 10 * time.Second // before memory is measured; kube-proxy's is the same after three minutes
	loadTimeout = 20 * time.Minute // until kube-proxy has loaded all Services

	// The time that iptables-nft-restore takes for kube-proxy's input grows with the square of the number of chains:
	// with 10,000 new Services it had not finished after 25 minutes. So Services above firstPart are created in parts.
	firstPart, part = 5000, 500
)

// A mode is a mode that both proxies have. backend is the backend of iptables, or empty.
type mode struct{ name, backend string }

// iptables-nft is the first mode, because only for it Services are created in parts. The next modes use the Services
// that exist.
var modes = []mode{{"iptables", "nft"}, {"iptables", "legacy"}, {"nftables", ""}}

// A figure is a quantity that is measured for both proxies. goal is the desired ratio of kube-proxy's value to
// Pointsman's with at least 10,000 Services, or 0.
type figure struct {
	name string // with the unit
	goal float64
}

var (
	load     = figure{"load-s", 20}    // time to write all rules, by the proxy's own metric
	startup  = figure{"start-s", 0}    // from the start of the process until all Services are served
	change   = figure{"change-s", 200} // from a change of one endpoint until the proxy has written it
	seen     = figure{"called-s", 0}   // from a change of one endpoint until a call reaches the new endpoint
	cpuShare = figure{"CPU-share", 20} // share of one processor, while 100 endpoints change each second
	memory   = figure{"memory-MB", 2}  // at rest
	connect  = figure{"connect-s", 0}  // how much longer a connection to a Service takes to open than one to its endpoint
	handed   = figure{"handed-B", 100} // input of iptables-restore for one change
)

// figures are the values measured for a proxy. They are nil if the proxy did not load all Services.
type figures map[figure]float64

// BenchmarkBesideKubeProxy measures kube-proxy and then Pointsman, each of which starts with empty tables and the same
// Services in the same API server. docs/performance.md has the results. POINTSMAN_BENCH_SIZES sets other sizes, such as
// "100x2 10000x10".
func BenchmarkBesideKubeProxy(b *testing.B) {
	needs(b)
	sizes := os.Getenv("POINTSMAN_BENCH_SIZES")
	if sizes == "" {
		sizes = "1000x1 10000x1 44000x1"
	}
	for _, word := range strings.Fields(sizes) {
		var s size
		if _, err := fmt.Sscanf(word, "%dx%d", &s.services, &s.endpoints); err != nil || s.services < 2 || s.endpoints < 1 {
			b.Fatalf("POINTSMAN_BENCH_SIZES: %q; try: 100x2", word)
		}
		b.Run(s.String(), func(b *testing.B) {
			w := newWorld(b, s)
			for _, m := range modes {
				b.Run(strings.TrimSuffix(m.name+"-"+m.backend, "-"), func(b *testing.B) {
					for b.Loop() {
						theirs := w.kubeProxy(b, m)
						report(b, s, w.pointsman(b, m), theirs)
					}
					b.ReportMetric(0, "ns/op")
				})
			}
		})
	}
}

// report reports the figures of Pointsman and kube-proxy, and their ratios.
func report(b *testing.B, s size, ours, theirs figures) {
	b.Helper()
	for f, value := range ours {
		b.ReportMetric(value, f.name)
		other, has := theirs[f]
		if !has {
			continue
		}
		b.ReportMetric(other, "kube-proxy-"+f.name)
		if f == connect || value <= 0 { // a proxy may write a change before the API server answers: then its time is negative
			continue
		}
		unit := "x-" + f.name
		if f.goal > 0 && s.services >= 10_000 {
			unit += fmt.Sprintf("(≥%g)", f.goal)
		}
		b.ReportMetric(other/value, unit)
	}
}

// BenchmarkSwapToNftables measures a swap from iptables to nftables with 10,000 Services, from the command until the
// canary has passed.
func BenchmarkSwapToNftables(b *testing.B) {
	needs(b)
	w := newWorld(b, size{10_000, 2})
	w.load(w.services)
	for b.Loop() {
		newHost, client := hostCommand(b, apiServer(w.cluster), "iptables", "")
		end := start(b, newHost())
		untilServed(b, client, w.services, 0)
		started := time.Now()
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
		b.ReportMetric(time.Since(started).Seconds(), "s-swap(≤3)")
		end()
		run(b, "nft", "flush", "ruleset")
	}
	b.ReportMetric(0, "ns/op")
}

func needs(b *testing.B) {
	b.Helper()
	if os.Getuid() != 0 {
		b.Skip("needs root: a proxy writes rules")
	}
	for _, program := range []string{"nft", "iptables-nft", "iptables-legacy"} {
		if _, err := exec.LookPath(program); err != nil {
			b.Skipf("needs %s: apt-get install nftables iptables", program)
		}
	}
}

// pointsman measures the host and its plugin.
func (w *world) pointsman(b *testing.B, m mode) figures {
	b.Helper()
	w.load(w.services)
	config := ""
	if m.backend != "" {
		config = "plugins: {iptables: {options: {backend: " + m.backend + "}}}\n"
	}
	newHost, client := hostCommand(b, apiServer(w.cluster), m.name, config)
	return w.measure(b, m, newHost(), func(int) ([]int, error) {
		s := untilServed(b, client, w.services, 0)
		return []int{s.Host.PID, s.Dataplane.PID}, nil
	})
}

const kubeProxy = "../../bin/peers/kube-proxy"

// kubeProxy measures kube-proxy.
func (w *world) kubeProxy(b *testing.B, m mode) figures {
	b.Helper()
	if m.backend == "nft" {
		w.load(min(w.services, firstPart))
	} else {
		w.load(w.services)
	}
	cmd := exec.Command(kubeProxy, "--proxy-mode="+m.name, "--hostname-override=n0", "--kubeconfig="+w.cluster.Kubeconfig(cluster.Token(cluster.Admin), ""),
		"--conntrack-max-per-core=0", "--cluster-cidr=10.128.0.0/9")
	return w.measure(b, m, cmd, func(pid int) ([]int, error) {
		for end := time.Now().Add(loadTimeout); ; w.load(min(w.services, w.loaded+part)) {
			err := eventually.Try(time.Until(end), func() error { return w.serves(w.loaded - 1) })
			if err != nil || w.loaded == w.services {
				return []int{pid}, err
			}
		}
	})
}

// serves returns no error if kube-proxy has finished its first sync and a call reaches the i-th Service.
func (w *world) serves(i int) error {
	if metrics().of("sync_full_proxy_rules_duration_seconds_count") == 0 {
		return errors.New("the first sync has not finished")
	}
	return w.call(i)
}

// measure runs a proxy and measures it. served must wait until the proxy serves all Services, and return the PIDs of
// its processes.
func (w *world) measure(b *testing.B, m mode, cmd *exec.Cmd, served func(pid int) ([]int, error)) figures {
	b.Helper()
	programs := m.programs(b)
	cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"))
	started := time.Now()
	end := start(b, cmd)
	defer m.flush(b)
	defer end()
	processes, err := served(cmd.Process.Pid)
	if err != nil {
		b.Logf("%s does not serve all Services after %s: %v", cmd.Path, loadTimeout, err)
		return nil
	}
	now := metrics()
	f := figures{startup: time.Since(started).Seconds(), load: now.of("sync_full_proxy_rules_duration_seconds_sum") + now.of("sync_partial_proxy_rules_duration_seconds_sum")}
	time.Sleep(idleTime)
	for _, pid := range processes {
		f[memory] += megabytes(b, pid)
	}
	f[connect] = w.connections(b)
	f[change], _ = w.changes(b, false)
	_, f[seen] = w.changes(b, true)
	before, started := cpuSeconds(b, processes), time.Now()
	w.churn(b)
	took := time.Since(started)
	w.change(b, refuses, false) // returns after the proxy has written this and all earlier changes
	f[cpuShare] = (cpuSeconds(b, processes) - before) / took.Seconds()
	if bytes := restoreInput(b, programs, func() { w.change(b, listens, false) }); m.backend != "" {
		f[handed] = bytes
	}
	return f
}

// programs creates a folder in which iptables and its variants are those of the mode's backend.
func (m mode) programs(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		if m.backend == "" {
			break
		}
		family, verb, _ := strings.Cut(name, "tables")
		with := family + "tables-" + m.backend + verb
		real, err := exec.LookPath(with)
		if err := errors.Join(err, os.Symlink(real, filepath.Join(dir, name)), os.Symlink(real, filepath.Join(dir, with))); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

// restoreInput runs f, and returns how many bytes iptables-restore and ip6tables-restore read meanwhile. It replaces
// the programs in dir by scripts that count.
func restoreInput(b *testing.B, dir string, f func()) (sum float64) {
	b.Helper()
	programs, err := filepath.Glob(filepath.Join(dir, "*-restore"))
	for _, program := range programs {
		real, failed := os.Readlink(program)
		script := fmt.Sprintf("#!/bin/sh\ncat >%[1]s/in.$$; wc -c <%[1]s/in.$$ >>%[1]s/bytes; exec %[2]s \"$@\" <%[1]s/in.$$\n", dir, real)
		err = errors.Join(err, failed, os.Remove(program), os.WriteFile(program, []byte(script), 0o755))
	}
	if err != nil {
		b.Fatal(err)
	}
	f()
	text, _ := os.ReadFile(filepath.Join(dir, "bytes")) // in mode nftables there is no such file
	for _, line := range strings.Fields(string(text)) {
		sum += number(line)
	}
	return sum
}

// flush deletes the rules that a proxy left, so that the next proxy starts with empty tables.
func (m mode) flush(b *testing.B) {
	b.Helper()
	run(b, "nft", "flush", "ruleset")
	for _, program := range []string{"iptables-legacy", "ip6tables-legacy"} {
		for _, table := range []string{"nat", "filter", "mangle"} {
			if m.backend == "legacy" {
				run(b, program, "-t", table, "-F")
				run(b, program, "-t", table, "-X")
			}
		}
	}
}
