// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestKernelDemo runs both acts of the demo.
func TestKernelDemo(t *testing.T) {
	n := newNode(t, "iptables")
	n.forks()
	config, err := filepath.Abs("../../configs/demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	demo := exec.CommandContext(t.Context(), n.path("pointsman"), "demo", "--config", config, "--plugin-dir", n.path("plugins"))
	demo.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	out, err := demo.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, part := range []string{"iptables serves; userspace drains", "its rules forward on", "userspace serves; iptables drains", "requests, 0 failed\n"} {
		if !strings.Contains(string(out), part) {
			t.Errorf("the demo says nothing with %q:\n%s", part, out)
		}
	}
}
