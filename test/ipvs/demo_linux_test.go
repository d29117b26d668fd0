// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The demo's part that needs IPVS: from iptables to ipvs while requests run, and no request
// fails. In a long run it is all of the demo.
func TestKernelIPVSDemo(t *testing.T) {
	n := newNode(t)
	config, err := filepath.Abs("../../configs/demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	demo := exec.CommandContext(t.Context(), filepath.Join(n.bin, "pointsman"), "demo", "--config", config, "--plugin-dir", n.bin)
	parts := []string{"ipvs serves; iptables drains", "its rules forward on", ", 0 failed)\n"}
	if os.Getenv("POINTSMAN_SOAK") == "" {
		demo.Env = append(os.Environ(), "POINTSMAN_DEMO_GUEST=1")
	} else {
		parts = append(parts, "userspace serves; ipvs drains", "requests, 0 failed\n")
	}
	out, err := demo.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, part := range parts {
		if !strings.Contains(string(out), part) {
			t.Errorf("the demo says nothing with %q:\n%s", part, out)
		}
	}
}
