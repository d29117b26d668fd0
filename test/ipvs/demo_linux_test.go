// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// All of the demo, on a kernel that has IPVS: from mode to mode while requests run, and no
// request fails. The part that needs IPVS is also in every make demo.
func TestKernelIPVSDemo(t *testing.T) {
	if os.Getenv("POINTSMAN_SOAK") == "" {
		t.Skip("takes minutes; for a long run: make soak")
	}
	n := newNode(t)
	config, err := filepath.Abs("../../configs/demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	demo := exec.CommandContext(t.Context(), filepath.Join(n.bin, "pointsman"), "demo", "--config", config, "--plugin-dir", n.bin)
	out, err := demo.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, part := range []string{"ipvs serves; iptables drains", "its rules forward on", "userspace serves; ipvs drains", "requests, 0 failed\n"} {
		if !strings.Contains(string(out), part) {
			t.Errorf("the demo says nothing with %q:\n%s", part, out)
		}
	}
}
