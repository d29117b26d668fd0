// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// expectRefused asks for a swap that must be refused for that reason and leave no trace.
func (n *node) expectRefused(mode, why string, words ...string) {
	n.Helper()
	out, err := n.verb(append([]string{"mode", "swap", mode, "--wait"}, words...)...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out, why) {
		n.Errorf("swap to %s: %v; want %q in the output: %s", mode, err, why, out)
	}
	n.waitForRest()
	n.expectNothingLeft(mode)
}

// TestKernelAskedTwice asks for the former mode and for the next mode again during a swap, and then resets the wanted
// mode: the last request wins, and a verb that waits for an earlier request exits with 3.
func TestKernelAskedTwice(t *testing.T) {
	n := newApart(t, "iptables")
	n.startAt("staging/fill")
	n.ask("userspace")
	n.waitAtFailpoint("staging/fill")
	waited := make(chan error, 1)
	go func() {
		_, err := n.verb("mode", "swap", "userspace", "--wait")
		waited <- err
	}()
	n.until("userspace is the wanted mode", func() error {
		if m, err := n.Mode(t.Context()); err != nil || m.Wanted != "userspace" {
			return fmt.Errorf("%+v, %w", m, err)
		}
		return nil
	})
	if out, err := n.verb("mode", "swap", "iptables"); err != nil || !strings.Contains(out, "is the wanted mode again") {
		t.Errorf("swap to iptables: %v: %s", err, out)
	}
	var exit *exec.ExitError
	if err := <-waited; !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("the verb that waited for userspace: %v; want exit code 3", err)
	}
	if out, err := n.verb("mode", "swap", "userspace"); err != nil {
		t.Errorf("swap to userspace again: %v: %s", err, out)
	}
	if out, err := n.verb("mode", "reset"); err != nil || !strings.Contains(out, "is undone") {
		t.Errorf("reset: %v: %s", err, out)
	}
	n.resume()
	n.waitForMode("iptables")
	n.expectNothingLeft("userspace")
	if out, err := n.verb("mode", "show"); err != nil || !strings.Contains(out, "undone: ") {
		t.Errorf("show: %v: %s", err, out)
	}
	if m, err := n.Mode(t.Context()); err != nil || m.Asked != "" {
		t.Errorf("the next host wants mode %q, %v", m.Asked, err)
	}
	if out, err := n.verb("status", "--until-well", "1m"); err != nil {
		t.Errorf("after a swap that was undone by request, the status is: %v: %s", err, out)
	}
}

// TestKernelFlips asks for two modes in turn without waiting: the last one serves in the end, and no call fails.
func TestKernelFlips(t *testing.T) {
	n := newNode(t, "iptables")
	n.start()
	l := n.newLoad()
	last := ""
	for i := range 30 {
		last = []string{"nftables", "iptables", "userspace"}[i%3]
		n.ask(last)
		n.until("the host wants "+last, func() error {
			m, err := n.Mode(t.Context())
			if err == nil && m.Wanted != last && m.Mode != last {
				err = fmt.Errorf("%+v", m)
			}
			return err
		})
	}
	n.waitForMode(last)
	l.done("modes asked for by turns")
	n.expectOnly(last)
}

// TestKernelLeavesAll compares a node with what it was before, after everything was removed: kernel parameters, all
// other programs' rules byte by byte, and the ledger.
func TestKernelLeavesAll(t *testing.T) {
	n := newNode(t, "iptables")
	n.addForeignRules()
	rules, foreign, sysctls := savedRules(t), n.foreignTables(), parameters()
	n.start()
	for _, mode := range []string{"userspace", "nftables", "iptables", "nftables", "userspace", "iptables"} {
		n.swapTo(mode)
		n.waitForMode(mode)
		n.waitForAnswers()
		n.expectOnly(mode)
	}
	n.end(syscall.SIGINT)
	if out, err := n.verb("cleanup"); err != nil {
		t.Fatalf("cleanup: %v: %s", err, out)
	}
	if now := savedRules(t); now != rules {
		t.Errorf("the rules were\n%s\nand are\n%s", rules, now)
	}
	if now := n.foreignTables(); now != foreign {
		t.Errorf("foreign tables were\n%s\nand are\n%s", foreign, now)
	}
	for path, was := range sysctls {
		if now, err := os.ReadFile(path); err == nil && string(now) != was {
			t.Errorf("%s was %q and is %q", path, was, now)
		}
	}
	n.expectOnly("")
}

// savedRules returns all rules, without times and counters.
func savedRules(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("iptables-save").Output()
	if err != nil {
		t.Fatal(err)
	}
	var kept strings.Builder
	for line := range strings.Lines(string(out)) {
		if line, _, _ = strings.Cut(line, "["); !strings.HasPrefix(line, "#") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// parameters returns the kernel parameters that dataplanes change.
func parameters() map[string]string {
	all := make(map[string]string)
	for _, pattern := range []string{"/proc/sys/net/ipv4/conf/*/*", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/netfilter/nf_conntrack_*", "/proc/sys/net/ipv4/vs/*"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			if value, err := os.ReadFile(path); err == nil && !strings.HasSuffix(path, "_count") {
				all[path] = string(value)
			}
		}
	}
	return all
}
