// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestKernelIPVSModuleLoadedLater: on a kernel that has not loaded IPVS, and cannot, the host prints the command to
// type. Once the module is loaded the node is served, without a restart.
func TestKernelIPVSModuleLoadedLater(t *testing.T) {
	n := newNode(t)
	if cpu, err := os.ReadFile("/proc/cpuinfo"); err != nil || !strings.Contains(string(cpu), "User Mode Linux") {
		t.Skip("needs a kernel of its own: it takes the module away")
	}
	s, stage := n.showScenario("dual-stack")
	modules := "/lib/modules/" + strings.TrimSpace(n.shell("uname -r"))
	n.shell("modprobe -r $(lsmod | awk '/^ip_vs_/ { print $1 }') ip_vs")
	n.shell("mv " + modules + " /run/modules")
	back := func() { n.shell("[ ! -e /run/modules ] || mv /run/modules " + modules + "; modprobe ip_vs") }
	defer back()
	n.launch()
	n.until("it says what to type", func() error {
		st, err := n.Status(n.Context())
		if err == nil && !strings.Contains(st.Dataplane.Why, "modprobe ip_vs") {
			err = fmt.Errorf("dataplane %s (%s)", st.Dataplane.State, st.Dataplane.Why)
		}
		return err
	})
	back()
	n.serving()
	n.expectPackets(s, stage)
}
