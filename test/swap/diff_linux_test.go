// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestKernelDiff asks a host where the kernel has something else than it should: nowhere, until
// another program puts a rule of its own among ours, which diff names. For another mode it names
// what that would write, and nothing of it is written.
func TestKernelDiff(t *testing.T) {
	for mode, c := range map[string]struct {
		harm        []string
		step, other string // what diff says of the harm; another mode
	}{
		"iptables": {[]string{"insert", "rule", "ip", "nat", "KUBE-SERVICES", "ip", "daddr", "203.0.113.98", "drop"}, "ipv4: write nat KUBE-SERVICES (", "nftables"},
		"nftables": {[]string{"insert", "rule", "ip", "pointsman", "far", "drop"}, "ipv4 pointsman: rewrite chain far with ", "iptables"},
	} {
		t.Run(mode, func(t *testing.T) {
			n := newNode(t, mode)
			n.options, n.protect = "backend: nft", "protect: never"
			n.mode(mode)
			n.start()
			n.until("nothing differs", long, func() error {
				if out, err := n.verb("diff"); err != nil || out != "nothing differs\n" {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			})
			n.until("diff names the foreign rule", long, func() error { // it may be repaired before diff reads
				n.nft(c.harm...)
				if out, _ := n.verb("diff"); !strings.Contains(out, "\n"+c.step) && !strings.HasPrefix(out, c.step) {
					return errors.New(out)
				}
				return nil
			})
			out, err := n.verb("diff", "--mode", c.other)
			if err == nil || !strings.Contains(out, " changes of "+c.other+" would be made\n") {
				t.Errorf("for %s it says %s, %v", c.other, out, err)
			}
			n.traceless(c.other)
		})
	}
}
