// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestKernelFromDown corrects the mode of a host whose plugin does not come up, while the
// rules that a host before left serve the node. Whatever goes wrong on the way, no
// connection fails: the rules are adopted, and nothing takes them away.
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
				n.mode("iptables")
				n.start()
				n.end(syscall.SIGKILL)
				n.installBrokenPlugin()
				n.mode("broken")
				n.write("state/mode.json", `{"serving":"broken"}`) // as of old; the host had just begun to serve
				n.write("gate", "")
				n.exec(n.host(), "POINTSMAN_FAIL="+c.fail, "POINTSMAN_FAIL_GATE="+n.path("gate"))
				n.until("status names the rules that nothing updates", func() error {
					if out, _ := n.verb("status"); !strings.Contains(out, "W018") || !strings.Contains(out, "iptables: ") {
						return errors.New(out)
					}
					return nil
				})
				l := n.newLoad()
				n.mode("iptables")
				if c.trouble != nil {
					c.trouble(n)
				}
				n.until("iptables serves", n.serves("iptables"))
				n.settled("iptables")
				l.done(name)
				n.updated(1)
			})
		}
	}
}

// TestKernelSignals ends the host at every stage of a swap, as an operator or systemd would: it is gone soon, whatever
// it was at, and the next one finishes the swap or undoes it. No connection fails in a mode that keeps rules.
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
		t.Run(p.String()+"/"+at, func(t *testing.T) { signalled(t, p, at, []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}[i%2]) })
	}
}

// signalled ends the host by a signal at a stage of the swap.
func signalled(t *testing.T, p pair, at string, signal syscall.Signal) {
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
	n.gone() // one that waits for itself never ends
	n.start()
	n.until(p.to+" serves", n.serves(p.to))
	l.excused = p.from == "userspace" || p.to == "userspace" // a launched relay ends with its host
	l.done(signal.String() + " at " + at)
	n.rested()
}

// installBrokenPlugin is a mode whose plugin ends at once; it has nothing to clean up.
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
	if pid == 0 { // which stands for this test's own process group
		n.Fatal("there is no process to kill")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		n.Fatalf("kill pid %d: %v", pid, err)
	}
}
