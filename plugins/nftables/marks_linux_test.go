// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
	"github.com/pointsman/pointsman/test/field"
)

// KUBE-MARK-MASQ, to which other programs jump, exists while this dataplane serves, and is removed with it. Without the
// programs of iptables, Services are served all the same.
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
		p, stage := k.active(g, s)
		eventually.True(k, "the chain exists", marks)
		if _, err := p.Cleanup(k.Context(), sdk.Leftovers{}); err != nil {
			k.Fatal(err)
		}
		if marks() {
			k.Error("Cleanup left the chain")
		}
		p.die()
		path := os.Getenv("PATH")
		k.Setenv("PATH", k.TempDir())
		next := k.start()
		noted := func() bool { return strings.Contains(strings.Join(next.Report().Notes, "\n"), "KUBE-MARK-MASQ") }
		if !noted() {
			k.Error("no note says before the first update that the programs are missing")
		}
		k.sync(next, s.Update(1))
		k.role(next, sdk.Active)
		eventually.True(k, "a note says that the chain is not maintained", noted)
		if a, err := stage.Send(k.Context(), s.Packets[0]); err != nil || a.Verdict != sdk.Forward {
			k.Errorf("without programs: %s, %v", a, err)
		}
		k.Setenv("PATH", path)
		eventually.True(k, "the chain exists again", marks)
		eventually.True(k, "the note is gone", func() bool { return !noted() })
		k.nft("flush", "chain", "ip", "nat", "KUBE-MARK-MASQ")
		eventually.True(k, "the chain has its rule again", func() bool {
			out, err := exec.Command("iptables", "-w", "-t", "nat", "-S", "KUBE-MARK-MASQ").Output()
			return err == nil && strings.Contains(string(out), "-j MARK")
		})
	})
}
