// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The demo goes through all modes where the kernel has IPVS, and no request fails. On a
// machine with too little time for a guest the host ends relays that do not answer, and
// who shows a demo there is told of requests that failed: so it is not for CI.
func TestKernelIPVSDemo(t *testing.T) {
	if os.Getenv("POINTSMAN_SOAK") == "" {
		t.Skip("needs a machine with nothing else to do, and some minutes: make soak has them")
	}
	n := newNode(t)
	config, err := filepath.Abs("../../configs/demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(n.bin, "pointsman"), "demo", "--config", config, "--plugin-dir", n.bin).CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, part := range []string{"ipvs serves; iptables drains", "requests, 0 failed\n"} {
		if !strings.Contains(string(out), part) {
			t.Errorf("the demo says nothing with %q:\n%s", part, out)
		}
	}
}
