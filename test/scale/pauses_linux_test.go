// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/test/cluster"
)

// BenchmarkPauses measures how long changes of Services wait after the plugin or the host was killed: until the next
// process has confirmed everything and serves. The rules serve all the time. The source of mode ipvs is a folder: under
// user-mode Linux, where it is measured, an API server takes minutes to start.
func BenchmarkPauses(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("needs root: the plugins write to the kernel")
	}
	modes := []string{"nftables", "iptables", "userspace"}
	if _, err := os.Stat("/proc/net/ip_vs"); err == nil {
		modes = append(modes, "ipvs")
	}
	run(b, "ip", "link", "set", "lo", "up")
	for _, count := range []int{1_000, 10_000, 44_000} {
		loaded := sync.OnceValue(func() *cluster.Cluster { // only if a mode is measured with this many
			c := cluster.Start(b, cluster.Options{})
			c.Load(objects(count, 1)...)
			return c
		})
		for _, mode := range modes {
			b.Run(fmt.Sprintf("%s/%d", mode, count), func(b *testing.B) {
				source := ""
				if mode == "ipvs" {
					source = folder(b, objects(count, 1))
				} else {
					source = apiServer(loaded())
				}
				pauses(b, source, mode, count)
			})
		}
	}
}

// folder returns the source of a host that reads these objects from manifests.
func folder(b *testing.B, all []metav1.Object) string {
	b.Helper()
	dir, text := b.TempDir(), new(bytes.Buffer)
	codec := scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion)
	for _, o := range all {
		if _, is := o.(*corev1.Node); is {
			continue
		}
		text.WriteString("---\n")
		if err := codec.Encode(o.(runtime.Object), text); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), text.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	return fmt.Sprintf("{files: {path: %s}}", dir)
}

func pauses(b *testing.B, source, mode string, count int) {
	hosts, client := hostCommand(b, source, mode, "")
	host := hosts()
	end := start(b, host)
	defer func() {
		end()
		run(b, host.Path, "cleanup", "--config", host.Args[3], "--plugin-dir", host.Args[5])
	}()
	s := untilServed(b, client, count, 0)
	killed := func(pid int, again func()) float64 {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			b.Fatal(err)
		}
		at := time.Now()
		again()
		s = untilServed(b, client, count, s.Dataplane.PID)
		return float64(time.Since(at).Milliseconds())
	}
	var plugin, whole float64
	n := 0
	for b.Loop() {
		n++
		plugin += killed(s.Dataplane.PID, func() {})
		whole += killed(s.Host.PID, func() {
			_ = host.Wait() // it was killed
			host = hosts()
			end = start(b, host)
		})
	}
	b.ReportMetric(plugin/float64(n), "ms/plugin-killed")
	b.ReportMetric(whole/float64(n), "ms/host-killed")
	b.ReportMetric(0, "ns/op")
}

// untilServed waits until another process of the plugin serves that many Services.
func untilServed(b *testing.B, client *admin.Client, count, other int) (s admin.Status) {
	b.Helper()
	until(b, "everything is confirmed", func() bool {
		now, err := client.Status(b.Context())
		s = now
		return err == nil && s.Services.Services >= count && s.Sync.Served > 0 && s.Sync.Pending == 0 && s.Dataplane.Role == "active" && s.Dataplane.PID != other
	})
	return s
}
