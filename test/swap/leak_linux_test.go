// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestKernelLeaks swaps and kills the plugin again and again, and counts what the host holds.
func TestKernelLeaks(t *testing.T) {
	n := newNode(t, "iptables")
	n.needsLaunchedPlugins()
	n.write("host.yaml", strings.Replace(n.settings("iptables"), `metricsBindAddress: ""`, "metricsBindAddress: 127.0.0.1:10249", 1))
	n.start()
	there := func() {
		n.swapTo("userspace")
		n.settled("userspace")
		n.swapTo("iptables")
		n.settled("iptables")
		pid := n.plugin("iptables")
		n.kill(pid)
		n.until("another process serves", long, n.servesWith("iptables", pid))
	}
	there()
	before := map[string]int{"files": n.least(n.files), "goroutines": n.least(n.goroutines)}
	for range 2 {
		there()
	}
	for what, count := range map[string]func() int{"files": n.files, "goroutines": n.goroutines} {
		n.until("the host has no more "+what+" than before", long, func() error {
			if now := count(); now > before[what]+2 { // one that four swaps or two kills left each would be more
				return fmt.Errorf("there were %d, and there are %d after four more swaps", before[what], now)
			}
			return nil
		})
	}
}

// least is the smallest of some counts: what is only there for a moment does not count.
func (n *node) least(count func() int) int {
	n.Helper()
	least := count()
	for range 20 {
		_, _ = n.Status(n.Context()) // another moment: the host has answered meanwhile
		least = min(least, count())
	}
	return least
}

// files are how many the host has open.
func (n *node) files() int {
	n.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.cmd.Process.Pid))
	if err != nil {
		n.Fatal(err)
	}
	return len(list)
}

// goroutines are how many it has, as its metrics tell.
func (n *node) goroutines() int {
	n.Helper()
	text := get(10249, "metrics")
	_, rest, _ := strings.Cut(text, "\ngo_goroutines ")
	count, _, _ := strings.Cut(rest, "\n")
	number, err := strconv.Atoi(count)
	if err != nil {
		n.Fatalf("the metrics do not tell of goroutines: %v", err)
	}
	return number
}
