// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/test/built"
	"github.com/pointsman/pointsman/test/eventually"
)

// TestKernelCleanupAfterTheHost: cleanup removes nothing while a plugin serves, and names it. The plugin ends with its
// host; then cleanup removes what it left in the kernel, even a table that it owned.
func TestKernelCleanupAfterTheHost(t *testing.T) {
	const plugin = "pointsman-dataplane-nftables"
	n := newNode(t, "nftables")
	n.needsLaunchedPlugins()
	dir := t.TempDir()
	if err := built.Into(dir, "", "./plugins/nftables/"+plugin); err != nil {
		t.Fatal(err)
	}
	n.installCopy(filepath.Join(dir, plugin), "plugins/"+plugin)
	n.start()
	n.until("it serves", func() error { return n.tryCall(pod, netip.AddrPortFrom(vip, port)) })
	left := n.plugin("nftables")
	before, err := exec.Command(n.path("plugins/"+plugin), "cleanup").CombinedOutput()
	if holder := fmt.Sprintf("pid %d (%s)", left, plugin); err == nil || !strings.Contains(string(before), holder) || !strings.Contains(string(before), "systemctl stop pointsman") {
		t.Errorf("cleanup beside the plugin: %v: %s; want that %s is named", err, before, holder)
	}
	if err := n.tryCall(pod, netip.AddrPortFrom(vip, port)); err != nil {
		t.Errorf("after that: %v", err)
	}
	n.end(syscall.SIGKILL)
	eventually.True(t, "the plugin has ended", func() bool { return syscall.Kill(left, 0) != nil })
	if err := n.tryCall(pod, netip.AddrPortFrom(vip, port)); err != nil {
		t.Errorf("without host and plugin the kernel does not serve: %v", err)
	}
	out, err := n.verb("cleanup")
	if err != nil || !strings.Contains(out, "remove table ip pointsman") {
		t.Errorf("cleanup: %v: %s", err, out)
	}
	tables, err := exec.Command("nft", "list", "tables").CombinedOutput()
	if err != nil || strings.Contains(string(tables), "pointsman") {
		t.Errorf("after cleanup, nf_tables has the tables %s, %v", tables, err)
	}
}
