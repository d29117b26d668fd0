// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/test/cluster"
)

// BenchmarkPauses is for how long changes of Services wait after the plugin or the host was killed, with nothing
// changed meanwhile: until the next process has confirmed everything and serves. The rules serve all the time.
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
		loaded := sync.OnceValue(func() *cluster.Cluster { // only if a mode is measured with so many
			c := cluster.Start(b, cluster.Options{})
			c.Load(objects(count, 1)...)
			return c
		})
		for _, mode := range modes {
			b.Run(fmt.Sprintf("%s/%d", mode, count), func(b *testing.B) { pauses(b, loaded(), mode, count) })
		}
	}
}

func pauses(b *testing.B, c *cluster.Cluster, mode string, count int) {
	hosts, client := hostCommand(b, c, mode)
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

// untilServed waits until a process of the plugin other than one serves that many Services.
func untilServed(b *testing.B, client *admin.Client, count, other int) (s admin.Status) {
	b.Helper()
	until(b, "everything is confirmed", func() bool {
		now, err := client.Status(b.Context())
		s = now
		return err == nil && s.Services.Services >= count && s.Sync.Served > 0 && s.Sync.Pending == 0 && s.Dataplane.Role == "active" && s.Dataplane.PID != other
	})
	return s
}
