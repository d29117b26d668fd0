// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestKernelForwardDrop has a node that forwards only because of the rules that the swap removes. The host itself may not
// read rules.
func TestKernelForwardDrop(t *testing.T) {
	n := newApart(t, "iptables")
	n.start()
	n.iptables("-P", "FORWARD", "DROP")
	defer n.iptables("-P", "FORWARD", "ACCEPT")
	n.expectRefused("userspace", "the policy of FORWARD is DROP")
	n.iptables("-A", "FORWARD", "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT")
	defer n.iptables("-D", "FORWARD", "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT")
	n.swapTo("userspace")
}

// TestKernelForwardDropWithoutTools has a node that forwards nothing, and no program to change that: a mode that needs
// forwarding is refused without --force, and reported while it serves.
func TestKernelForwardDropWithoutTools(t *testing.T) {
	n := newNode(t, "userspace")
	n.needsLaunchedPlugins()
	n.addSettings("plugins: {userspace: {options: {redirect: never}}}\n")
	n.writeMode("userspace")
	path := n.replaceTools("", "echo 'iptables v1.4.21'\n") // too old
	n.start(path)
	n.iptables("-P", "FORWARD", "DROP")
	defer n.iptables("-P", "FORWARD", "ACCEPT")
	const drops = "chain FORWARD of table ip filter drops what is forwarded, by its policy"
	n.expectRefused("nftables", drops)
	if out, err := n.verb("mode", "swap", "nftables", "--dry-run"); err == nil || !strings.Contains(out, drops) {
		t.Errorf("a dry run: %v: %s", err, out)
	}
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
