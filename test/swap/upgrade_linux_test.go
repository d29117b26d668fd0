// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// buildNewer builds the host and a plugin again, into a folder of that name, with flags that change the binaries.
func (n *node) buildNewer(name string, flags ...string) {
	n.Helper()
	build := exec.Command("go", append(append([]string{"build"}, flags...), "-o", n.path(name)+"/", "./host/pointsman", "./plugins/iptables/pointsman-dataplane-iptables")...)
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		n.Fatalf("%v: %s", err, out)
	}
}

// replace installs the host of that folder, and ends the running one.
func (n *node) replace(from string) {
	n.Helper()
	n.installCopy(filepath.Join(from, "pointsman"), "pointsman")
	n.end(syscall.SIGTERM)
}

// restartPlugin waits until the installed plugin serves, and returns its process.
func (n *node) restartPlugin(mode string) int {
	n.Helper()
	was := n.plugin(mode)
	if out, err := n.verb("plugin", "restart", mode); err != nil {
		n.Fatalf("%v: %s", err, out)
	}
	n.until("the other binary serves", n.servesWith(mode, was))
	if m := n.waitForMode(mode); m.Last == nil || m.Last.Error != "" {
		n.Errorf("it was no swap, or one that was undone: %+v", m.Last)
	}
	return n.plugin(mode)
}

// kernelRules returns rules of the kernel, all of them or those of a table, with the handle of each. A rule that is
// written again gets another handle.
func (n *node) kernelRules(what string) string {
	n.Helper()
	out, err := exec.Command("nft", "-a", "list "+what).Output()
	if err != nil {
		n.Skipf("nft lists the rules: %v", err)
	}
	return regexp.MustCompile(`counter packets \d+ bytes \d+`).ReplaceAllString(string(out), "counter")
}

// withoutLeadingHandles removes the handles from the chains that lead to Services: the canary's rules came and went,
// and a chain that gets an entry is written whole. The chains of the Services themselves, and the base chains, keep
// every handle.
func withoutLeadingHandles(rules string) string {
	handle := regexp.MustCompile(` # handle \d+`)
	var kept strings.Builder
	leads := false
	for line := range strings.Lines(rules) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "chain" {
			leads = strings.HasPrefix(words[1], "KUBE-") && !regexp.MustCompile(`^KUBE-(SVC|EXT|SVL|FW|SEP)-`).MatchString(words[1])
		}
		if leads {
			line = handle.ReplaceAllString(line, "")
		}
		kept.WriteString(line)
	}
	return kept.String()
}

// diffLines returns the lines that only one of two texts has.
func diffLines(before, after string) string {
	had, has := strings.Split(before, "\n"), strings.Split(after, "\n")
	var all []string
	for _, line := range had {
		if !slices.Contains(has, line) {
			all = append(all, "- "+line)
		}
	}
	for _, line := range has {
		if !slices.Contains(had, line) {
			all = append(all, "+ "+line)
		}
	}
	return strings.Join(all, "\n")
}

// TestKernelHostRestarts kills the host in different ways and starts it again. No connection fails, the plugin ends
// with the host, and no rule is written again.
func TestKernelHostRestarts(t *testing.T) {
	for mode, rules := range map[string]string{"iptables": "ruleset", "nftables": "table ip pointsman"} {
		t.Run(mode, func(t *testing.T) { hostRestarts(t, mode, rules) })
	}
}

func hostRestarts(t *testing.T, mode, rules string) {
	const restarts = 4
	n := newNode(t, mode)
	n.start()
	l := n.newLoad()
	before := n.kernelRules(rules)
	var longest time.Duration
	for round := range restarts {
		if err := n.cmd.Process.Signal([]syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[round%2]); err != nil {
			t.Fatal(err)
		}
		was := n.plugin(mode)
		n.waitForExit()
		n.until("the plugin has ended", func() error {
			if was == 0 || syscall.Kill(was, 0) != nil {
				return nil
			}
			return fmt.Errorf("process %d runs", was)
		})
		began := time.Now()
		n.start()
		longest = max(longest, time.Since(began))
	}
	if after := n.kernelRules(rules); after != before {
		t.Errorf("rules were written again:\n%s", diffLines(before, after))
	}
	l.done(fmt.Sprintf("%d restarts of a host with %s", restarts, mode))
	t.Logf("from the start of a host to its first confirmed update: longest %s (goal: 2s)", longest)
}

// TestKernelUpgrade replaces host and plugin with other binaries and back, in both orders.
func TestKernelUpgrade(t *testing.T) {
	n := newNode(t, "iptables")
	n.needsLaunchedPlugins()
	older, newer := programs.dir, n.path("newer")
	n.buildNewer("newer", "-tags=failpoints", "-ldflags=-buildid=newer")
	n.installCopy(filepath.Join(older, "pointsman"), "pointsman")
	n.installPlugin("iptables", older)
	n.start()
	l := n.newLoad()
	before := n.kernelRules("ruleset")
	host := func(from string) {
		n.replace(from)
		n.start()
	}
	plugin := func(from string) {
		n.installPlugin("iptables", from)
		n.restartPlugin("iptables")
	}
	host(newer)
	plugin(newer)
	host(older)
	plugin(older)
	plugin(newer)
	host(newer)
	plugin(older)
	host(older)
	if after := withoutLeadingHandles(n.kernelRules("ruleset")); after != withoutLeadingHandles(before) {
		t.Errorf("rules were written again:\n%s", diffLines(withoutLeadingHandles(before), after))
	}
	l.done("4 upgrades and downgrades of a host, and as many of a plugin")
}
