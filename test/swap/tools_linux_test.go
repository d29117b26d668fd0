// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestKernelForwardDrop has a node that forwards only because of the rules that the swap removes. The host itself may
// not read rules.
func TestKernelForwardDrop(t *testing.T) {
	n := newApart(t, "iptables")
	n.start()
	n.iptables("-P", "FORWARD", "DROP")
	defer n.iptables("-P", "FORWARD", "ACCEPT")
	n.expectRefused("userspace", "the policy of FORWARD is DROP")
	n.iptables("-A", "FORWARD", "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT")
	defer n.iptables("-D", "FORWARD", "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT")
	n.swapTo("userspace")
	n.waitForMode("userspace") // while a mode drains, a third one is refused
	n.swapTo("nftables")
	n.waitForAnswers()
	n.waitForMode("nftables")
	n.swapTo("iptables")
}

// TestKernelForwardDropWithoutTools has a node that forwards nothing, and no program to change that: a mode that needs
// forwarding is refused without --force, and reported while it serves.
func TestKernelForwardDropWithoutTools(t *testing.T) {
	n := newNode(t, "userspace")
	n.needsLaunchedPlugins()
	n.addSettings("plugins: {userspace: {options: {redirect: never}}}\n")
	n.writeMode("userspace")
	n.installOldTools()
	path := "PATH=" + n.path("tools") + ":" + os.Getenv("PATH")
	n.start(path)
	n.iptables("-P", "FORWARD", "DROP")
	defer n.iptables("-P", "FORWARD", "ACCEPT")
	const drops = "chain FORWARD of table ip filter drops what is forwarded, by its policy"
	n.expectRefused("nftables", drops)
	n.writeMode("nftables")
	n.until("the swap by the file is refused, too", func() error {
		switch s, err := n.Status(t.Context()); {
		case err != nil:
			return err
		case s.LastSwap == nil || s.Mode != "userspace" || !strings.Contains(s.LastSwap.Error, drops):
			return fmt.Errorf("mode %s, last swap %+v", s.Mode, s.LastSwap)
		}
		return nil
	})
	degraded := func(want bool) {
		t.Helper()
		n.until(fmt.Sprint("status is degraded: ", want), func() error {
			out, err := n.verb("status")
			if has := strings.Contains(out, "W024") && strings.Contains(out, drops) && err != nil; has != want {
				return errors.New(out)
			}
			return nil
		})
	}
	if out, err := n.verb("mode", "swap", "nftables", "--force", "--wait"); err != nil {
		t.Fatal(err, out)
	}
	degraded(true)
	n.reboot()
	n.start(path)
	degraded(true)
	n.iptables("-P", "FORWARD", "ACCEPT")
	degraded(false)
}

// installOldTools installs programs of iptables that are too old into the folder tools.
func (n *node) installOldTools() {
	n.Helper()
	for _, tool := range []string{"iptables", "ip6tables", "iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"} {
		n.write("tools/"+tool, "#!/bin/sh\necho 'iptables v1.4.21'\n")
		if err := os.Chmod(n.path("tools/"+tool), 0o755); err != nil {
			n.Fatal(err)
		}
	}
}

// iptables runs the program.
func (n *node) iptables(words ...string) {
	n.Helper()
	if out, err := exec.Command("iptables", append([]string{"-w"}, words...)...).CombinedOutput(); err != nil {
		n.Fatalf("iptables %q: %v: %s", words, err, out)
	}
}

// addForeignRules adds rules of other programs, until the test ends.
func (n *node) addForeignRules() {
	n.Helper()
	n.nft("-f", "testdata/foreign.nft")
	n.Cleanup(func() {
		for _, table := range foreignTableNames {
			n.nft("delete table " + table)
		}
	})
	dnat := []string{"PREROUTING", "-d", "203.0.113.9", "-j", "DNAT", "--to-destination", "10.180.0.1"}
	n.iptables(append([]string{"-t", "nat", "-A"}, dnat...)...)
	n.iptables("-N", "MINE")
	n.iptables("-A", "MINE", "-s", "203.0.113.0/24", "-m", "comment", "--comment", "not yours", "-j", "DROP")
	n.iptables("-A", "INPUT", "-j", "MINE")
	n.Cleanup(func() {
		n.iptables(append([]string{"-t", "nat", "-D"}, dnat...)...)
		n.iptables("-D", "INPUT", "-j", "MINE")
		n.iptables("-F", "MINE")
		n.iptables("-X", "MINE")
	})
}

// foreignTableNames are the tables of testdata/foreign.nft.
var foreignTableNames = []string{
	"inet firewalld", "ip libvirt_network", "ip6 libvirt_network", "ip docker-bridges", "ip6 docker-bridges",
	"ip calico", "inet cilium", "inet pointsman",
}

// foreignTables returns the contents of these tables, with the handle of each rule.
func (n *node) foreignTables() string {
	n.Helper()
	var all strings.Builder
	for _, table := range foreignTableNames {
		all.WriteString(n.nft("-a", "list table "+table))
	}
	return all.String()
}

// nft runs the program, and returns its output.
func (n *node) nft(words ...string) string {
	n.Helper()
	out, err := exec.Command("nft", words...).CombinedOutput()
	if err != nil {
		n.Fatalf("nft %q: %v: %s", words, err, out)
	}
	return string(out)
}

// TestKernelOldTools has a node whose iptables is too old for the options.
func TestKernelOldTools(t *testing.T) {
	n := newNode(t, "userspace")
	n.needsLaunchedPlugins()
	n.addSettings("plugins: {userspace: {options: {redirect: never}}}\n")
	n.writeMode("userspace")
	n.installOldTools()
	n.start("PATH=" + n.path("tools") + ":" + os.Getenv("PATH"))
	out, err := n.verb("mode", "swap", "iptables", "--wait")
	if err == nil || !strings.Contains(out, "1.4.21") {
		t.Errorf("swap to iptables: %v: %s", err, out)
	}
	n.waitForRest()
}

// TestKernelLockHeld swaps while another program holds the xtables lock. The swap waits, and succeeds;
// TestHeartbeatOfACall covers that a call that waits may take longer than one that hangs. The node has a lock of its
// own, so that no other test waits for it. The test comes late, because the legacy tables stay, and with them every
// program takes the lock.
func TestKernelLockHeld(t *testing.T) {
	n := newNode(t, "userspace")
	n.needsLaunchedPlugins()
	n.addSettings("plugins: {iptables: {options: {backend: legacy}}, userspace: {options: {backend: legacy}}}\n")
	n.writeMode("userspace")
	file := n.path("xtables.lock")
	n.run(exec.Command(n.path("pointsman"), "run", "--config", n.path("host.yaml")), "XTABLES_LOCKFILE="+file)
	l := n.newLoad()
	lock, err := os.OpenFile(file, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	n.ask("iptables")
	n.until("the plugin says what it waits for", func() error {
		list, err := n.Plugins(t.Context())
		for _, p := range list.Items {
			if strings.Contains(p.Waiting, "xtables lock") {
				return nil
			}
		}
		return errors.Join(err, errors.New("it does not"))
	})
	pid := n.plugin("iptables")
	l.more(500)
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	n.until("iptables serves", n.serves("iptables"))
	l.done("a swap while another program has the lock")
	if now := n.plugin("iptables"); now != pid {
		t.Errorf("process %d waited for the lock, and %d serves", pid, now)
	}
}

// TestKernelLegacy checks the legacy backend for what no Service may attract or use as an endpoint, and for what a
// neighbour may not reach.
func TestKernelLegacy(t *testing.T) {
	for _, mode := range []string{"iptables", "userspace"} {
		t.Run("hijack/"+mode, func(t *testing.T) { hijack(t, mode, "backend: legacy") })
	}
	t.Run("martian", func(t *testing.T) { martian(t, "backend: legacy") })
}
