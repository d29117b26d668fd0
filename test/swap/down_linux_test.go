// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// TestKernelFromDown changes the mode of a host whose plugin does not start while rules of an earlier host serve the
// node, and kills the host meanwhile. No connection fails: the rules are adopted, and nothing removes them. TestFromDown
// of host/dataplanes has other faults.
func TestKernelFromDown(t *testing.T) {
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			n := newNode(t, "iptables")
			n.needsLaunchedPlugins()
			n.options = "backend: " + backend
			n.writeMode("iptables")
			n.start()
			n.end(syscall.SIGKILL)
			n.installBrokenPlugin()
			n.writeMode("broken")
			n.write("state/mode.json", `{"serving":"broken"}`) // the old mode; the host had only just started it
			n.exec(n.host(), "POINTSMAN_FAIL=verifying/verify=kill")
			n.until("status names the rules that nothing updates", func() error {
				out, _ := n.verb("status")
				return lacks(out, "W018", "iptables: ")
			})
			l := n.newLoad()
			n.writeMode("iptables")
			n.waitForFailpointKill()
			n.exec(n.host())
			n.until("iptables serves", n.serves("iptables"))
			n.waitForMode("iptables")
			l.done("from a mode that is down")
			n.update(1)
		})
	}
}

// TestKernelFactsAreLost kills a host and damages the file by which the next one knows what served, while the config file
// names another mode. The next host serves in that mode, and cleans up the mode before.
func TestKernelFactsAreLost(t *testing.T) {
	for _, p := range []pair{{"iptables", "nftables", ""}, {"nftables", "iptables", ""}, {"userspace", "nftables", ""}, {"userspace", "iptables", ""}} {
		t.Run(p.String(), func(t *testing.T) {
			n := newNode(t, p.from)
			n.needsLaunchedPlugins()
			n.writeMode(p.from)
			n.start()
			l := n.newLoad()
			n.end(syscall.SIGKILL)
			n.write("state/mode.json", `{"serving":`)
			n.writeMode(p.to)
			n.exec(n.host())
			n.until(p.from+" is cleaned up", func() error {
				if m := n.waitForMode(p.to); len(m.Left) > 0 {
					return fmt.Errorf("left: %s", m.Left)
				}
				return nil
			})
			n.expectNothingLeft(p.from)
			l.excused = p.from == "userspace" // a launched relay ends with its host
			l.done("a host that does not know " + p.from)
			n.update(1)
		})
	}
}

// installBrokenPlugin installs a mode whose plugin ends at once and has nothing to clean up.
func (n *node) installBrokenPlugin() {
	n.Helper()
	n.write("plugins/pointsman-dataplane-broken", "#!/bin/sh\n[ \"$1\" = cleanup ] && exit\necho no such thing here >&2\nexit 1\n")
	if err := os.Chmod(n.path("plugins/pointsman-dataplane-broken"), 0o755); err != nil {
		n.Fatal(err)
	}
}

// kill kills a process.
func (n *node) kill(pid int) { n.Helper(); n.signal(pid, syscall.SIGKILL) }

// signal sends a signal to a process.
func (n *node) signal(pid int, sig syscall.Signal) {
	n.Helper()
	if pid == 0 { // kill(2) would take it for this test's own process group
		n.Fatal("there is no process to kill")
	}
	if err := syscall.Kill(pid, sig); err != nil {
		n.Fatalf("send pid %d %s: %v", pid, sig, err)
	}
}
