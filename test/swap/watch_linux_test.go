// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

const nobody = `
apiVersion: v1
kind: Service
metadata: {name: nobody, namespace: shop}
spec: {clusterIP: 172.30.0.20, ports: [{name: tcp, port: 8080, protocol: TCP}]}
`

// TestKernelWatch watches packets with a host: one that is served, one to a Service without endpoints, and one that
// another program drops. It ends with the plugin. The tests of package field check what a mode reports about each packet.
func TestKernelWatch(t *testing.T) {
	n := newNode(t, "nftables")
	n.protect = "protect: never"
	n.write("services/nobody.yaml", nobody)
	n.writeMode("nftables")
	n.start()
	n.waitForAnswers()
	web, empty := netip.AddrPortFrom(vip, port), netip.MustParseAddrPort("172.30.0.20:8080")
	w := n.watch("outside:"+client.String(), web.String())
	w.expectLine(web, "forward tcp 198.18.0.7:", " > 172.30.0.10:8080, shop/web:tcp/tcp4 to 10.180.")
	w.waitForEnd(syscall.SIGINT, "")

	w = n.watch()
	w.expectLine(empty, "reject tcp 198.18.0.7:", " > 172.30.0.20:8080, shop/nobody:tcp/tcp4: it has no endpoint that may be used (no_endpoint); nftables, table ip ", " rule ")
	n.nft("add table ip firewall; add chain ip firewall guard { type filter hook forward priority 10; }; add rule ip firewall guard ip daddr { 10.180.0.1, 10.180.1.1 } drop")
	w.expectLine(web, "drop tcp 198.18.0.7:", " > 172.30.0.10:8080, shop/web:tcp/tcp4; nftables, table ip firewall, chain guard, rule 1 (handle ")
	n.nft("delete table ip firewall")
	pid := n.plugin("nftables")
	n.kill(pid)
	w.waitForEnd(0, "pointsman: ")
	n.until("the table of the watch is gone", func() error {
		if tables := n.nft("list tables"); strings.Contains(tables, "pointsman-watch-") {
			return fmt.Errorf("the tables are %s", tables)
		}
		return nil
	})
	n.until("another process serves", n.servesWith("nftables", pid))
}

// A watch is the running verb.
type watch struct {
	*node
	cmd *exec.Cmd
}

func (n *node) watch(words ...string) *watch {
	n.Helper()
	w := &watch{node: n}
	w.cmd = exec.CommandContext(n.Context(), n.path("pointsman"), append([]string{"explain", "--watch", "--for", "10m", "--config", n.path("host.yaml")}, words...)...)
	said, err := os.Create(n.path("watch"))
	if err != nil {
		n.Fatal(err)
	}
	defer said.Close()
	w.cmd.Stdout, w.cmd.Stderr = said, said
	if err := w.cmd.Start(); err != nil {
		n.Fatal(err)
	}
	return w
}

// expectLine calls an address until one line of the output has all parts.
func (w *watch) expectLine(to netip.AddrPort, parts ...string) {
	w.Helper()
	call := w.caller("client", client, to)
	w.until(fmt.Sprintf("it tells %q", parts), func() error {
		_ = call.Try(w.Context()) // some of them are dropped
		for line := range strings.Lines(w.read("watch")) {
			missing := false
			for _, part := range parts {
				missing = missing || !strings.Contains(line, part)
			}
			if !missing {
				return nil
			}
		}
		return fmt.Errorf("watch prints %s", w.read("watch"))
	})
}

// waitForEnd waits for the verb's end, after a signal unless that is zero: with an error that starts with failure, or
// without one.
func (w *watch) waitForEnd(signal syscall.Signal, failure string) {
	w.Helper()
	if signal != 0 {
		_ = w.cmd.Process.Signal(signal)
	}
	if err := w.cmd.Wait(); (err != nil) != (failure != "") || !strings.Contains(w.read("watch"), failure) {
		w.Errorf("it ends with %v: %s", err, w.read("watch"))
	}
}
