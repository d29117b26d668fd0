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
	settling = 10 * time.Second // time to come to rest; kube-proxy's memory is the same after three minutes
	giveUp   = 20 * time.Minute // for a kube-proxy that has not loaded everything

	// For kube-proxy, the time of iptables-nft-restore grows with the square of the number of chains: with 10,000
	// Services at once it had not finished after 25 minutes. More than atOnce Services are created in parts.
	atOnce, part = 5000, 500
)

// A mode is served by both proxies; backend is that of iptables, or empty.
type mode struct{ name, backend string }

// The mode for which Services are created in parts comes first, since the others find all of them.
var modes = []mode{{"iptables", "nft"}, {"iptables", "legacy"}, {"nftables", ""}}

// A figure is measured for both proxies; goal is the desired ratio of kube-proxy's figure to Pointsman's, with 10,000
// Services and more.
type figure struct {
	name string // with the unit
	goal float64
}

var (
	load      = figure{"load-s", 20}    // all rules, as the proxy measures it
	begun     = figure{"start-s", 0}    // from its start until everything is served
	change    = figure{"change-s", 200} // one endpoint, until the proxy has written it
	seen      = figure{"called-s", 0}   // one endpoint, until a call reaches it
	processor = figure{"CPU-share", 20} // share of one processor, while 100 endpoints change each second
	memory    = figure{"memory-MB", 2}  // at rest
	connect   = figure{"connect-s", 0}  // how much longer a new connection takes than one to the endpoint
	handed    = figure{"handed-B", 100} // input of iptables-restore for one change
)

// figures are the measurements of a proxy; nil: it did not finish.
type figures map[figure]float64

// BenchmarkBesideKubeProxy lets kube-proxy and Pointsman serve the same Services from the same API server, one after
// the other on the same empty tables, for the table of docs/performance.md. POINTSMAN_BENCH_SIZES sets other sizes,
// such as "100x2 10000x10".
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
		if f == connect || value <= 0 { // a change may be written before the server answers
			continue
		}
		unit := "x-" + f.name
		if f.goal > 0 && s.services >= 10_000 {
			unit += fmt.Sprintf("(≥%g)", f.goal)
		}
		b.ReportMetric(other/value, unit)
	}
}

// BenchmarkSwapToNftables measures how long a swap with 10,000 Services takes from the command until the canary has
// passed, from iptables to nftables.
func BenchmarkSwapToNftables(b *testing.B) {
	needs(b)
	w := newWorld(b, size{10_000, 2})
	w.load(w.services)
	for b.Loop() {
		hosts, client := hostCommand(b, apiServer(w.cluster), "iptables", "")
		end := start(b, hosts())
		untilServed(b, client, w.services, 0)
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
	more := ""
	if m.backend != "" {
		more = "plugins: {iptables: {options: {backend: " + m.backend + "}}}\n"
	}
	hosts, client := hostCommand(b, apiServer(w.cluster), m.name, more)
	return w.measure(b, m, hosts(), func(int) ([]int, error) {
		s := untilServed(b, client, w.services, 0)
		return []int{s.Host.PID, s.Dataplane.PID}, nil
	})
}

const kubeProxy = "../../bin/peers/kube-proxy"

// kubeProxy measures kube-proxy.
func (w *world) kubeProxy(b *testing.B, m mode) figures {
	b.Helper()
	if m.backend == "nft" {
		w.load(min(w.services, atOnce))
	} else {
		w.load(w.services)
	}
	cmd := exec.Command(kubeProxy, "--proxy-mode="+m.name, "--hostname-override=n0", "--kubeconfig="+w.cluster.Kubeconfig(cluster.Token(cluster.Admin), ""),
		"--conntrack-max-per-core=0", "--cluster-cidr=10.128.0.0/9")
	return w.measure(b, m, cmd, func(pid int) ([]int, error) {
		for end := time.Now().Add(giveUp); ; w.load(min(w.services, w.loaded+part)) {
			err := eventually.Try(time.Until(end), func() error { return w.serves(w.loaded - 1) })
			if err != nil || w.loaded == w.services {
				return []int{pid}, err
			}
		}
	})
}

// serves returns no error if the i-th Service is served, and everything from the start.
func (w *world) serves(i int) error {
	if metrics().of("sync_full_proxy_rules_duration_seconds_count") == 0 {
		return errors.New("the first update is not done")
	}
	return w.call(i)
}

// measure runs a proxy and measures it; served waits until it serves everything, and returns its processes.
func (w *world) measure(b *testing.B, m mode, cmd *exec.Cmd, served func(pid int) ([]int, error)) figures {
	b.Helper()
	programs := m.programs(b)
	cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"))
	began := time.Now()
	end := start(b, cmd)
	defer m.flush(b)
	defer end()
	processes, err := served(cmd.Process.Pid)
	if err != nil {
		b.Logf("%s is given up after %s: %v", cmd.Path, giveUp, err)
		return nil
	}
	now := metrics()
	f := figures{begun: time.Since(began).Seconds(), load: now.of("sync_full_proxy_rules_duration_seconds_sum") + now.of("sync_partial_proxy_rules_duration_seconds_sum")}
	time.Sleep(settling)
	for _, pid := range processes {
		f[memory] += megabytes(b, pid)
	}
	f[connect] = w.connections(b)
	f[change], _ = w.changes(b, false)
	_, f[seen] = w.changes(b, true)
	before, began := used(b, processes), time.Now()
	w.churn(b)
	took := time.Since(began)
	w.change(b, refuses, false) // earlier changes have reached the kernel, too
	f[processor] = (used(b, processes) - before) / took.Seconds()
	if bytes := spied(b, programs, func() { w.change(b, listens, false) }); m.backend != "" {
		f[handed] = bytes
	}
	return f
}

// programs returns a folder where iptables is the one of the mode's backend.
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

// spied returns the size of iptables-restore's input while f runs.
func spied(b *testing.B, dir string, f func()) (sum float64) {
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

// flush removes what a proxy leaves, so that the next one does not read it.
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
