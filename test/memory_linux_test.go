// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/test/eventually"
)

// BenchmarkMemory10kx10 is what the real host and a real plugin have resident with
// 10,000 Services of ten endpoints each, next to the size of that state on the
// wire: at most on the way there, and when all is served.
func BenchmarkMemory10kx10(b *testing.B) {
	for _, mode := range []string{"keeper", "userspace"} {
		b.Run(mode, func(b *testing.B) {
			host := build(b, "./host/pointsman")
			plugin := build(b, map[string]string{"keeper": "./test/keeper", "userspace": "./plugins/userspace/pointsman-dataplane-userspace"}[mode])
			dir := b.TempDir()
			manyManifests(b, dir)
			var h *loaded
			for b.Loop() {
				h = startLoaded(b, host, plugin, mode, dir)
				time.Sleep(settling) // a figure of make bench: what they keep, and no fact says when they have given back the rest
				b.ReportMetric(megabytes(b, h.host, "VmHWM:"), "MB/host-most")
				b.ReportMetric(megabytes(b, h.host, "VmRSS:"), "MB/host")
				b.ReportMetric(megabytes(b, h.plugin, "VmHWM:"), "MB/plugin-most")
				b.ReportMetric(megabytes(b, h.plugin, "VmRSS:"), "MB/plugin")
				h.stop(b)
			}
			b.ReportMetric(h.took.Seconds(), "s/to-serve")
			b.ReportMetric(0, "ns/op")
		})
	}
	b.Run("wire", func(b *testing.B) {
		plugin := build(b, "./test/keeper")
		for b.Loop() {
			before := written(b)
			newWay(b, plugin, 10_000)
			b.ReportMetric(float64(written(b)-before)/1e6, "MB/on-the-wire")
		}
		b.ReportMetric(0, "ns/op")
	})
}

// manyManifests writes 10,000 Services, on addresses that the userspace plugin can
// listen on, into 100 files.
func manyManifests(b *testing.B, dir string) {
	b.Helper()
	if err := os.Mkdir(filepath.Join(dir, "services"), 0o755); err != nil {
		b.Fatal(err)
	}
	for file := range 100 {
		var text strings.Builder
		for n := range 100 {
			i := file*100 + n
			var endpoints []string
			for e := range 10 {
				endpoints = append(endpoints, fmt.Sprintf("127.%d.%d.%d", 150+e, i/250, 1+i%250))
			}
			text.WriteString(tcpService(fmt.Sprintf("service-%d", i), fmt.Sprintf("127.140.%d.%d", i/250, 1+i%250), 18080, endpoints...))
		}
		path := filepath.Join(dir, "services", fmt.Sprintf("%d.yaml", file))
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

// A loaded host serves all that the manifests say.
type loaded struct {
	cmd          *exec.Cmd
	host, plugin int
	took         time.Duration
}

func startLoaded(b *testing.B, host, plugin, mode, dir string) *loaded {
	b.Helper()
	config := filepath.Join(dir, "host.yaml")
	text := fmt.Sprintf(`apiVersion: pointsman.dev/v1alpha1
kind: HostConfig
mode: %[1]s
source: {files: {path: services}}
minSyncPeriod: 1s
adminSocket: admin.sock
stateDir: state
healthzBindAddress: ""
metricsBindAddress: ""
oomScoreAdj: 0
plugins: {%[1]s: {path: %[2]s, options: %[3]s}}
`, mode, plugin, map[string]string{"keeper": "{}", "userspace": "{redirect: never}"}[mode])
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	h := &loaded{cmd: exec.Command(host, "run", "--config", config)}
	var log strings.Builder
	h.cmd.Stderr = &log
	began := time.Now()
	if err := h.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.cmd.Process.Kill() }) // if it still runs
	client := admin.NewClient(filepath.Join(dir, "admin.sock"))
	err := eventually.Try(eventually.Timeout, func() error {
		s, err := client.Status(context.Background())
		if err == nil && (s.Services.Services != 10_000 || s.Sync.Acked == 0 || s.Sync.Pending > 0) {
			err = fmt.Errorf("%+v", s.Sync)
		}
		if err == nil {
			h.host, h.plugin, h.took = s.Host.PID, s.Dataplane.PID, time.Since(began)
		}
		return err
	})
	if err != nil {
		b.Fatalf("not served in time: %v\n%.4000s", err, log.String())
	}
	return h
}

// settling is time enough for both to give back what the way there took.
const settling = 3 * time.Second

func (h *loaded) stop(b *testing.B) {
	b.Helper()
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.Fatal(err)
	}
	_ = h.cmd.Wait()
	_ = syscall.Kill(h.plugin, syscall.SIGKILL) // a host may leave it behind
}

// megabytes is what the kernel says a process has.
func megabytes(b *testing.B, pid int, field string) float64 {
	b.Helper()
	return float64(memory(b, pid, field)) * 1024 / 1e6
}
