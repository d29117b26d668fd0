// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestInstallSteps runs the install commands of docs/install.md below a folder, and checks that the installed host
// finds the dataplane there.
func TestInstallSteps(t *testing.T) {
	t.Parallel()
	root, bin := t.TempDir(), binaries(t)
	steps := regexp.MustCompile(`(?m)^# (install .*bin/pointsman.*)$`).FindAllStringSubmatch(read(t, "../docs/install.md"), -1)
	if len(steps) != 2 {
		t.Fatalf("docs/install.md copies binaries by %q", steps)
	}
	for _, m := range steps {
		step := strings.NewReplacer(" /usr/", " "+root+"/usr/", "bin/pointsman-", bin+"/plugins/pointsman-", "bin/pointsman", bin+"/pointsman").Replace(m[1])
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", "mkdir -p "+root+"/usr/bin && "+step).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", step, err, out)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin/pointsman"), "plugin", "check", "userspace",
		"--plugin-dir", filepath.Join(root, "usr/libexec/pointsman"), "--admin-socket", filepath.Join(root, "none.sock"))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "this node can run userspace") {
		t.Errorf("plugin check: %v: %s", err, out)
	}
}
