// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestKernelIPVSUntracked: connections from the time when net.ipv4.vs.conntrack was 0 are taken over and continue; a
// swap to another mode would end them. So it is refused, with the reason, until they have ended.
func TestKernelIPVSUntracked(t *testing.T) {
	n := newNode(t)
	s, stage := n.showScenario("dual-stack")
	n.start()
	n.expectPackets(s, stage)
	n.stop() // what it wrote keeps serving, as after a kube-proxy
	n.shell("echo 0 >/proc/sys/net/ipv4/vs/conntrack")
	one := s
	one.Packets = s.Packets[:1] // by a pod, which must not be masqueraded
	kept := n.connect(one, stage)

	n.start()
	n.until("the parameter is set again", func() error { return n.parameter("net/ipv4/vs/conntrack", "1") })
	n.expectKept(kept)
	const why = "began while net.ipv4.vs.conntrack was 0"
	for _, other := range []string{"iptables", "userspace"} {
		n.expectRefused(other, why)
		n.expectKept(kept)
	}
	for flow := range kept {
		if err := flow.Close(); err != nil {
			t.Error(err)
		}
	}
	n.until("nothing keeps the mode from being changed", func() error {
		if undone := n.ask("iptables"); undone != "" {
			return errors.New(undone)
		}
		return nil
	})
	n.expectPackets(s, stage)
}

// parameter returns an error if a parameter of the kernel has another value.
func (n *node) parameter(name, want string) error {
	n.Helper()
	if have := strings.TrimSpace(n.shell("cat /proc/sys/" + name)); have != want {
		return fmt.Errorf("%s is %s", name, have)
	}
	return nil
}

// expectRefused checks that a swap is refused with a reason, and that ipvs keeps serving.
func (n *node) expectRefused(to, why string) {
	n.Helper()
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		began := time.Now()
		undone := n.ask(to)
		if strings.Contains(undone, why) {
			n.until("ipvs serves on", func() error { return n.mode("ipvs", true) })
			return
		}
		if !n.isBusy(undone, began) {
			n.Fatalf("to %s: %q", to, undone)
		}
		n.Logf("to %s: %s; once more", to, undone)
	}
	n.Fatalf("the change to %s was never refused", to)
}
