// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"strings"
	"testing"
)

// TestKernelExplain asks a host what becomes of a packet, of which the kernel would do what it should,
// until another program drops what is sent to one of the endpoints: explain names that program's rule.
func TestKernelExplain(t *testing.T) {
	for _, mode := range []string{"iptables", "nftables"} {
		t.Run(mode, func(t *testing.T) {
			n := newNode(t, mode)
			n.options, n.protect = "backend: nft", "protect: never"
			n.mode(mode)
			n.start()
			to := fmt.Sprintf("%s:%d", vip, port)
			says := func(what string, lines ...string) {
				t.Helper()
				n.until(what, long, func() error {
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
			says("the kernel does what it should", "kernel now forward to 10.180.0.1:8080 (50%), forward to 10.180.1.1:8080 (50%)")
			n.nft("add", "table", "ip", "firewall")
			n.nft("add", "chain", "ip", "firewall", "guard", "{ type filter hook forward priority 10; }")
			n.nft("add", "rule", "ip", "firewall", "guard", "ip", "daddr", "10.180.1.1", "drop")
			says("explain names the foreign rule", "kernel now forward to 10.180.0.1:8080 (50%), drop (50%)", "differs it would come to drop, not forward",
				"rule nftables, table ip firewall, chain guard, rule 1", "try this is what stops it: nftables, table ip firewall, chain guard, rule 1; if Pointsman did not write that")
			n.nft("delete", "table", "ip", "firewall")
			says("the rule is gone", "kernel now forward to 10.180.0.1:8080 (50%), forward to 10.180.1.1:8080 (50%)")
		})
	}
}
