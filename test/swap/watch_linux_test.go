// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// guard adds the rules of another program, which drops what is sent to these endpoints.
func (n *node) guard(endpoints string) {
	n.Helper()
	n.nft("add table ip firewall; add chain ip firewall guard { type filter hook forward priority 10; }; add rule ip firewall guard ip daddr { " + endpoints + " } drop")
}

// TestKernelExplain asks diff and explain about a packet that the kernel delivers, about one that rules of other programs
// drop, and about one whose rules another program removes.
func TestKernelExplain(t *testing.T) {
	for mode, harm := range map[string]string{
		"iptables": "flush chain ip nat KUBE-SERVICES",
		"nftables": "flush map ip pointsman endpoints",
	} {
		t.Run(mode, func(t *testing.T) {
			n := newNode(t, mode)
			n.options, n.protect = "backend: nft", "protect: never"
			n.writeMode(mode)
			n.start()
			explains := func(parts ...string) {
				t.Helper()
				n.until(fmt.Sprintf("explain says %q", parts), func() error {
					out, err := n.verb("explain", "outside:198.18.0.7", fmt.Sprintf("%s:%d", vip, port))
					if err != nil {
						return fmt.Errorf("%w: %s", err, out)
					}
					return lacks(strings.Join(strings.Fields(out), " "), parts...)
				})
			}
			const both = "kernel now forward to 10.180.0.1:8080, forward to 10.180.1.1:8080"
			explains(both)
			n.until("nothing differs", func() error {
				if out, err := n.verb("diff"); err != nil || out != "nothing differs\n" {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			})
			n.guard("10.180.1.1")
			const rule = "nftables, table ip firewall, chain guard, rule 1"
			explains("kernel now drop, forward to 10.180.0.1:8080", "differs the kernel's verdict is drop, not forward",
				"try this rule stops it: "+rule+"; if Pointsman did not write that", "WALK TO 10.180.1.1:8080", " "+rule)
			n.nft("delete table ip firewall")
			n.iptables("-I", "FORWARD", "-d", "10.180.0.1", "-j", "DROP")
			explains("kernel now drop, forward to 10.180.1.1:8080", "table filter, chain FORWARD, rule", "-d 10.180.0.1/32 -j DROP")
			n.iptables("-D", "FORWARD", "-d", "10.180.0.1", "-j", "DROP")
			explains(both)
			harms := exec.CommandContext(t.Context(), "sh", "-c", "while nft '"+harm+"'; do :; done")
			if err := harms.Start(); err != nil { // more than once: what is repaired before diff reads is no difference
				t.Fatal(err)
			}
			defer func() { _ = harms.Process.Kill(); _ = harms.Wait() }()
			n.until("diff names a frontend", func() error {
				out, err := n.verb("diff")
				if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 {
					return fmt.Errorf("%w: %s", err, out)
				}
				return lacks(out, "cluster-ip "+vip.String()+":", " difference")
			})
		})
	}
}

// lacks returns an error if a text does not contain all parts.
func lacks(text string, parts ...string) error {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return fmt.Errorf("there is no %q in %s", part, text)
		}
	}
	return nil
}

// TestKernelWatch watches packets with a host: one to a Service without endpoints, and one that another program drops. It
// ends with the plugin. The tests of package field check what a mode reports about each packet.
func TestKernelWatch(t *testing.T) {
	n := newNode(t, "nftables")
	n.write("services/nobody.yaml", service("nobody", "172.30.0.20", "", port))
	n.start()
	n.waitForAnswers()
	said, err := os.Create(n.path("watch"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	watch := exec.CommandContext(t.Context(), n.path("pointsman"), "explain", "--watch", "--for", "10m", "--config", n.path("host.yaml"))
	watch.Stdout, watch.Stderr = said, said
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	expectLine := func(to netip.AddrPort, parts ...string) {
		t.Helper()
		call := n.caller("client", client, to)
		n.until(fmt.Sprintf("it tells %q", parts), func() (err error) {
			_ = call.Try(t.Context()) // some of them are dropped
			for line := range strings.Lines(n.read("watch") + "\n") {
				if err = lacks(line, parts...); err == nil {
					return nil
				}
			}
			return err
		})
	}
	web, empty := netip.AddrPortFrom(vip, port), netip.MustParseAddrPort("172.30.0.20:8080")
	expectLine(empty, "reject tcp 198.18.0.7:", " > 172.30.0.20:8080, shop/nobody:tcp/tcp4: it has no endpoint that may be used (no_endpoint); nftables, table ip ", " rule ")
	n.guard("10.180.0.1, 10.180.1.1")
	expectLine(web, "drop tcp 198.18.0.7:", " > 172.30.0.10:8080, shop/web:tcp/tcp4; nftables, table ip firewall, chain guard, rule 1 (handle ")
	n.nft("delete table ip firewall")
	pid := n.plugin("nftables")
	n.kill(pid)
	if err := watch.Wait(); err == nil || !strings.Contains(n.read("watch"), "pointsman: ") {
		t.Errorf("it ends with %v: %s", err, n.read("watch"))
	}
	n.until("another process serves, and the table of the watch is gone", func() error {
		if tables := n.nft("list tables"); strings.Contains(tables, "pointsman-watch-") {
			return fmt.Errorf("the tables are %s", tables)
		}
		return n.servesWith("nftables", pid)()
	})
}
