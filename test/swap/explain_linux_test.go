// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"strings"
	"testing"
)

// TestKernelExplain runs explain for a packet that the kernel delivers, and again when another program drops what is
// sent to one of the endpoints: explain names that program's rule.
func TestKernelExplain(t *testing.T) {
	for _, mode := range []string{"iptables", "nftables"} {
		t.Run(mode, func(t *testing.T) {
			n := newNode(t, mode)
			n.options, n.protect = "backend: nft", "protect: never"
			n.writeMode(mode)
			n.start()
			to := fmt.Sprintf("%s:%d", vip, port)
			says := func(what string, lines ...string) {
				t.Helper()
				n.until(what, func() error {
					out, err := n.verb("explain", "outside:198.18.0.7", to)
					words := strings.Join(strings.Fields(out), " ")
					for _, line := range lines {
						if err != nil || !strings.Contains(words, line) {
							return fmt.Errorf("%w: it lacks %q: %s", err, line, out)
						}
					}
					if len(lines) == 1 && strings.Contains(words, "differs") {
						return fmt.Errorf("it differs: %s", out)
					}
					return nil
				})
			}
			const both = "kernel now forward to 10.180.0.1:8080, forward to 10.180.1.1:8080"
			says("the kernel does what it should", both)
			n.nft("add", "table", "ip", "firewall")
			n.nft("add", "chain", "ip", "firewall", "guard", "{ type filter hook forward priority 10; }")
			n.nft("add", "rule", "ip", "firewall", "guard", "ip", "daddr", "10.180.1.1", "drop")
			const guard = "nftables, table ip firewall, chain guard, rule "
			says("explain names the foreign rule", "kernel now drop, forward to 10.180.0.1:8080", "differs the kernel's verdict is drop, not forward",
				"try this rule stops it: "+guard+"1; if Pointsman did not write that", "WALK TO 10.180.1.1:8080", " "+guard+"1")
			n.nft("add", "rule", "ip", "firewall", "guard", "ip", "daddr", "10.180.0.1", "drop")
			says("both are dropped", "kernel now drop differs the kernel's verdict is drop, not forward", guard)
			n.nft("delete", "table", "ip", "firewall")
			says("the rules are gone", both)
			n.iptables("-I", "FORWARD", "-d", "10.180.0.1", "-j", "DROP")
			says("explain names a foreign rule of iptables", "kernel now drop, forward to 10.180.1.1:8080", "table filter, chain FORWARD, rule", "-d 10.180.0.1/32 -j DROP")
			n.iptables("-D", "FORWARD", "-d", "10.180.0.1", "-j", "DROP")
			says("that rule is gone", both)
		})
	}
}
