// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/built"
)

// A process that may not write rules uses the way without rules, and reports its limits.
func TestWithoutPrivileges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pointsman-dataplane-userspace")
	if err := built.Into(filepath.Dir(path), "", "./plugins/userspace/pointsman-dataplane-userspace"); err != nil {
		t.Skipf("needs go to build the plugin: %v", err)
	}
	for dir := filepath.Dir(path); dir != filepath.Clean(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // so that another user can start it
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), path, "check")
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, limit := range []sdk.Limit{sdk.LimitOwnAddressesOnly, sdk.LimitNoDrop} {
		if !strings.Contains(string(out), string(limit)) {
			t.Errorf("it does not say %s: %s", limit, out)
		}
	}
}
