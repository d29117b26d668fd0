// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
	"github.com/pointsman/pointsman/test/field"
)

// KUBE-MARK-MASQ, to which other programs jump, exists while this dataplane serves, is repaired, and is removed with it.
func TestKernelKeepsTheMarkingChain(t *testing.T) {
	g := field.Testbed(t)
	onKernel(t, func(k kernel) {
		if _, err := exec.LookPath("iptables"); err != nil {
			k.Skip("needs iptables: ", err)
		}
		marks := func() bool {
			return exec.Command("iptables", "-w", "-t", "nat", "-S", "KUBE-MARK-MASQ").Run() == nil
		}
		s := k.place(g, sticking)
		p, _ := k.active(g, s)
		eventually.True(k, "the chain exists", marks)
		k.nft("flush", "chain", "ip", "nat", "KUBE-MARK-MASQ")
		eventually.True(k, "the chain has its rule again", func() bool {
			out, err := exec.Command("iptables", "-w", "-t", "nat", "-S", "KUBE-MARK-MASQ").Output()
			return err == nil && strings.Contains(string(out), "-j MARK")
		})
		if _, err := p.Cleanup(k.Context(), sdk.Leftovers{}); err != nil {
			k.Fatal(err)
		}
		if marks() {
			k.Error("Cleanup left the chain")
		}
	})
}
