// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"os/exec"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// The chain that other programs lead packets to is there while this dataplane serves, and is
// removed with it. Without iptables' programs Services are served all the same.
func TestKernelKeepsTheMarkingChain(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		if _, err := exec.LookPath("iptables"); err != nil {
			k.Skip("needs iptables: ", err)
		}
		marks := func() bool {
			return exec.Command("iptables", "-w", "-t", "nat", "-S", "KUBE-MARK-MASQ").Run() == nil
		}
		s := k.parsed(g, sticking)
		p, stage := k.active(g, s)
		eventually.True(k, "the chain is there", marks)
		if _, err := p.Cleanup(k.Context(), sdk.Leftovers{}); err != nil {
			k.Fatal(err)
		}
		if marks() {
			k.Error("the chain is left behind")
		}
		p.die()
		k.Setenv("PATH", k.TempDir())
		next := k.start()
		k.sync(next, s.Update(1))
		k.role(next, sdk.Active)
		if a, err := stage.Send(k.Context(), s.Packets[0]); err != nil || a.Verdict != sdk.Forward {
			k.Errorf("without programs: %s, %v", a, err)
		}
	})
}
