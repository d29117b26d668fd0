// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/test/built"
)

// TestKernelCleanupAfterTheHost: the verb ends a plugin whose host is gone, also one that owns its
// table and of which nothing is written down any more, and removes that table.
func TestKernelCleanupAfterTheHost(t *testing.T) {
	const plugin = "pointsman-dataplane-nftables"
	for _, lose := range []string{"nothing", "process.json"} {
		t.Run(lose, func(t *testing.T) {
			n := newNode(t, "nftables")
			n.forks()
			dir := t.TempDir()
			if err := built.Into(dir, "", "./plugins/nftables/"+plugin); err != nil {
				t.Fatal(err)
			}
			n.copy(filepath.Join(dir, plugin), "plugins/"+plugin)
			n.start()
			n.until("it serves", long, func() error { return n.hears(pod, netip.AddrPortFrom(vip, port)) })
			left := n.plugin("nftables")
			if err := n.cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			n.gone(long)
			if err := os.RemoveAll(n.path("state/plugins/nftables/" + lose)); err != nil || left == 0 {
				t.Fatalf("process %d: %v", left, err)
			}
			if _, err := launch.StartTime(left); err != nil {
				t.Fatalf("the plugin ended with its host: %v", err)
			}
			out, err := n.verb("cleanup")
			if err != nil || !strings.Contains(out, fmt.Sprint(left)) || !strings.Contains(out, "remove table ip pointsman") {
				t.Errorf("cleanup beside process %d: %v: %s", left, err, out)
			}
			if _, err := launch.StartTime(left); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("process %d still runs: %v", left, err)
			}
			tables, err := exec.Command("nft", "list", "tables").CombinedOutput()
			if err != nil || strings.Contains(string(tables), "pointsman") {
				t.Errorf("after cleanup there are %s, %v", tables, err)
			}
		})
	}
}
