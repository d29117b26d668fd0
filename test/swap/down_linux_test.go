// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestKernelFromDown changes the mode of a host whose plugin does not start while rules of an earlier host serve the
// node. No connection fails: the rules are adopted, and nothing removes them.
func TestKernelFromDown(t *testing.T) {
	for _, backend := range []string{"nft", "legacy"} {
		for name, c := range map[string]struct {
			fail    string
			trouble func(n *node)
		}{
			"nothing goes wrong": {},
			"the plugin is killed": {"staging/fill=wait", func(n *node) {
				n.waitAtFailpoint("staging/fill")
				n.kill(n.plugin("iptables"))
				n.resume()
			}},
			"the host is killed": {"verifying/verify=kill", func(n *node) {
				n.waitForFailpointKill()
				n.exec(n.host())
			}},
			"both are killed": {"staging/fill=kill", func(n *node) { // the plugin ends with the host
				n.waitForFailpointKill()
				n.exec(n.host())
			}},
		} {
			t.Run(backend+"/"+name, func(t *testing.T) {
				n := newNode(t, "iptables")
				n.needsLaunchedPlugins()
				n.options = "backend: " + backend
				n.writeMode("iptables")
				n.start()
				n.end(syscall.SIGKILL)
				n.installBrokenPlugin()
				n.writeMode("broken")
				n.write("state/mode.json", `{"serving":"broken"}`) // the old mode; the host had only just started it
				n.write("gate", "")
				n.exec(n.host(), "POINTSMAN_FAIL="+c.fail, "POINTSMAN_FAIL_GATE="+n.path("gate"))
				n.until("status names the rules that nothing updates", func() error {
					if out, _ := n.verb("status"); !strings.Contains(out, "W018") || !strings.Contains(out, "iptables: ") {
						return errors.New(out)
					}
					return nil
				})
				l := n.newLoad()
				n.writeMode("iptables")
				if c.trouble != nil {
					c.trouble(n)
				}
				n.until("iptables serves", n.serves("iptables"))
				n.waitForMode("iptables")
				l.done(name)
				n.update(1)
			})
		}
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

// TestKernelSignals ends the host with a signal at every stage of a swap, as an operator or systemd does. The host
// exits soon, and the next one finishes the swap or undoes it. No connection fails in a mode that serves by rules.
func TestKernelSignals(t *testing.T) {
	pairs := []pair{
		{"iptables", "nftables", ""}, {"nftables", "userspace", ""}, {"userspace", "iptables", ""},
		{"nftables", "iptables", ""}, {"userspace", "nftables", ""}, {"iptables", "userspace", ""},
	}
	for i, at := range []string{
		"preflight/launch", "staging/fill", "verifying/verify", "holding/freeze", "holding/hold",
		"cutting/promote", "cutting/retire", "proving/prove", "draining/drain", "clearing/clear",
	} {
		p := pairs[i%len(pairs)]
		t.Run(p.String()+"/"+at, func(t *testing.T) { signalDuringSwap(t, p, at, []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}[i%2]) })
	}
}

// signalDuringSwap sends the host a signal at a stage of the swap.
func signalDuringSwap(t *testing.T, p pair, at string, signal syscall.Signal) {
	n := newNode(t, p.from)
	n.needsLaunchedPlugins()
	n.startAt(at)
	l := n.newLoad()
	n.ask(p.to)
	n.waitAtFailpoint(at)
	if err := n.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	n.resume()
	n.waitForExit() // a plugin that waits for itself never ends
	n.start()
	n.until(p.to+" serves", n.serves(p.to))
	l.excused = p.from == "userspace" || p.to == "userspace" // a launched relay ends with its host
	l.done(signal.String() + " at " + at)
	n.waitForRest()
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
func (n *node) kill(pid int) {
	n.Helper()
	if pid == 0 { // kill(2) would take it for this test's own process group
		n.Fatal("there is no process to kill")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		n.Fatalf("kill pid %d: %v", pid, err)
	}
}
