// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/host/launch"
)

// TestKernelOrphan: the plugin of a former host, of which nothing is written down any more,
// keeps the next one from nothing: a change of a Service's address is in the kernel.
func TestKernelOrphan(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			n := newNode(t, "iptables")
			n.forks()
			n.start()
			n.until("it serves", long, func() error { return n.hears(pod, netip.AddrPortFrom(vip, port)) })
			left := n.plugin("iptables")
			if err := n.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			n.gone(long)
			if err := os.Remove(n.path("state/plugins/iptables/process.json")); err != nil || left == 0 {
				t.Fatalf("process %d: %v", left, err)
			}
			if _, err := launch.StartTime(left); err != nil {
				t.Fatalf("the plugin ended with its host: %v", err)
			}
			const other = "172.30.0.11"
			n.write("services/web.yaml", strings.Replace(manifest, vip.String(), other, 1))
			n.start()
			n.until("the change is served", long, func() error {
				return n.hears(pod, netip.AddrPortFrom(netip.MustParseAddr(other), port))
			})
			if _, err := launch.StartTime(left); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("process %d of the former host still runs: %v", left, err)
			}
		})
	}
}
