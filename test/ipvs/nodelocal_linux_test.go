// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"strings"
	"testing"
)

// TestKernelIPVSNodeLocal: a swap to ipvs is refused while an interface has a ClusterIP, as with NodeLocal DNS, and the
// old mode keeps serving.
func TestKernelIPVSNodeLocal(t *testing.T) {
	n := newNode(t)
	n.write("host.yaml", n.config("iptables"))
	s, stage := n.showScenario("dual-stack")
	n.start()
	n.expectPackets(s, stage)
	n.shell("ip link add nodelocaldns type dummy && ip address add 172.30.0.41/32 dev nodelocaldns")
	t.Cleanup(func() { n.shell("ip link del nodelocaldns 2>/dev/null || :") })
	const why = "interface nodelocaldns has the ClusterIP 172.30.0.41 of Service ns1/web"
	n.until("the swap is refused", func() error {
		if undone := n.ask("ipvs"); !strings.Contains(undone, why) {
			return errors.New(undone)
		}
		return n.mode("iptables", true)
	})
	n.shell("ip link del nodelocaldns")
	n.expectPackets(s, stage)
	n.change("ipvs")
	n.expectPackets(s, stage)
}
