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

// BenchmarkPauses measures how long changes of Services wait after the plugin or the host is killed: until the next
// plugin process is Active and has confirmed all Services. The rules in the kernel serve all the time. The host of mode
// ipvs reads manifests from a folder, because an API server takes minutes to start under user-mode Linux.
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
		loaded := sync.OnceValue(func() *cluster.Cluster { // not started if -bench selects only ipvs
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

// folder writes the objects as manifests, and returns the config of a source that reads them.
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
	newHost, client := hostCommand(b, source, mode, "")
	host := newHost()
	end := start(b, host)
	defer func() {
		end()
		run(b, host.Path, "cleanup", "--config", host.Args[3], "--plugin-dir", host.Args[5])
	}()
	s := untilServed(b, client, count, 0)
	pause := func(pid int, restart func()) float64 { // kills pid, and returns the milliseconds until all is confirmed
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			b.Fatal(err)
		}
		at := time.Now()
		restart()
		s = untilServed(b, client, count, s.Dataplane.PID)
		return float64(time.Since(at).Milliseconds())
	}
	var plugin, whole float64
	n := 0
	for b.Loop() {
		n++
		plugin += pause(s.Dataplane.PID, func() {})
		whole += pause(s.Host.PID, func() {
			_ = host.Wait() // returns the signal as an error
			host = newHost()
			end = start(b, host)
		})
	}
	b.ReportMetric(plugin/float64(n), "ms/plugin-killed")
	b.ReportMetric(whole/float64(n), "ms/host-killed")
	b.ReportMetric(0, "ns/op")
}

// untilServed waits until a plugin process other than old is Active and has confirmed at least count Services. It
// returns the status.
func untilServed(b *testing.B, client *admin.Client, count, old int) (s admin.Status) {
	b.Helper()
	until(b, fmt.Sprintf("a plugin process other than %d has confirmed %d Services", old, count), func() bool {
		now, err := client.Status(b.Context())
		s = now
		return err == nil && s.Services.Services >= count && s.Sync.Served > 0 && s.Sync.Pending == 0 && s.Dataplane.Role == "active" && s.Dataplane.PID != old
	})
	return s
}
