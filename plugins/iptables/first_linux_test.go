// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
)

// BenchmarkFirstPacket is how long a new connection of a pod takes to be open among
// 10,000 Services, beside one to the same endpoint through a node whose tables are
// empty. Connections to all of them take turns, so that whatever else goes on on the
// machine meets all of them alike.
func BenchmarkFirstPacket(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("needs root: it makes network namespaces")
	}
	for _, backend := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		b.Run(string(backend), func(b *testing.B) {
			full, err := netns.New()
			if err != nil {
				b.Fatal(err)
			}
			defer full.Close()
			empty, err := netns.Apart()
			if err != nil {
				b.Fatal(err)
			}
			defer empty.Close()
			if err := empty.Node().Do(func() error { return openTables(backend) }); err != nil {
				b.Fatal(err)
			}
			r := race{B: b, testbed: full, backend: backend, services: racers(10_000), dir: b.TempDir()}
			r.answer()
			race{B: b, testbed: empty}.answer()
			r.flush()
			defer r.flush()
			r.sync(r.plugin(), r.everything())
			for b.Loop() {
				r.rounds(empty)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// openTables makes the tables of this namespace, without rules.
func openTables(backend iptables.Backend) error {
	for _, table := range []string{"nat", "filter", "mangle"} {
		if out, err := exec.Command("iptables-"+string(backend), "-t", table, "-S").CombinedOutput(); err != nil {
			return fmt.Errorf("iptables -t %s: %w: %s", table, err, out)
		}
	}
	return nil
}

const blocks, rounds = 15, 1000

// rounds has connections to each target take turns with those through empty tables, and
// reports what each target's took beside them: the median of what the blocks say, as
// a few connections of any block meet something else that the machine does.
func (r race) rounds(empty *netns.Testbed) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // packets are measured, not Go
	to := r.targets()
	ratios := make(map[string][]float64)
	var nothing [2][]float64
	for range blocks {
		took := make(map[string][]time.Duration)
		for range rounds {
			took[""] = append(took[""], r.opened(empty, answering))
			for name, at := range to {
				took[name] = append(took[name], r.opened(r.testbed, at))
			}
		}
		for _, all := range took {
			slices.Sort(all)
		}
		for i, at := range []int{rounds / 2, rounds * 99 / 100} {
			nothing[i] = append(nothing[i], float64(took[""][at])/float64(time.Microsecond))
			for name := range to {
				unit := fmt.Sprintf("x-%s-p%d(≤1.3)", strings.ReplaceAll(name, " ", "-"), []int{50, 99}[i])
				ratios[unit] = append(ratios[unit], float64(took[name][at])/float64(took[""][at]))
			}
		}
	}
	for unit, all := range ratios {
		r.ReportMetric(median(all), unit)
	}
	r.ReportMetric(median(nothing[0]), "µs/empty-p50")
	r.ReportMetric(median(nothing[1]), "µs/empty-p99")
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// opened is how long a pod's connection takes to be open. The sockets are the kernel's
// own, which block: nothing of Go's scheduler is in it.
func (r race) opened(through *netns.Testbed, to netip.AddrPort) (took time.Duration) {
	pod, err := through.Host(netip.MustParseAddr("10.180.0.9"))
	if err == nil {
		err = pod.Do(func() error {
			for range 100 { // a signal of Go's scheduler spoils one now and then
				if took, err = connected(to); !errors.Is(err, unix.EINTR) {
					break
				}
			}
			return err
		})
	}
	if err != nil {
		r.Fatal(err)
	}
	return took
}

// connected is how long connect takes; the answer is awaited, so that nothing of this
// connection is left to do when the next one begins.
func connected(to netip.AddrPort) (took time.Duration, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	timeout := unix.Timeval{Sec: 5}
	err = errors.Join(unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}), // its port is free at once
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout))
	if err != nil {
		return 0, err
	}
	at := &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	began := time.Now()
	if err := unix.Connect(fd, at); err != nil {
		return 0, fmt.Errorf("connect to %s: %w", to, err)
	}
	took = time.Since(began)
	_, err = unix.Read(fd, make([]byte, 64))
	return took, err
}
