// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/eventually"
)

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

// TestKernelHostRestarts kills the host in different ways and starts it again. No connection fails, a launched plugin ends
// with the host, a unit stays, and no rule is written again.
func TestKernelHostRestarts(t *testing.T) {
	for name, c := range map[string]struct {
		begin       func(*testing.T, string) *node
		mode, rules string
	}{
		"iptables":      {newNode, "iptables", "ruleset"},
		"nftables":      {newNode, "nftables", "table ip pointsman"},
		"iptables unit": {newApart, "iptables", "ruleset"},
	} {
		t.Run(name, func(t *testing.T) {
			n := c.begin(t, c.mode)
			n.start()
			l := n.newLoad()
			before := n.kernelRules(c.rules)
			for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT} {
				was := n.plugin(c.mode)
				n.end(sig)
				if n.kept == nil {
					eventually.SucceedsWithin(t, long, "the plugin has ended", func() error {
						if syscall.Kill(was, 0) == nil {
							return fmt.Errorf("process %d runs", was)
						}
						return nil
					})
				}
				began := time.Now()
				n.start()
				t.Logf("%s: from the start of the next host to its first confirmed update: %s (goal: 2s)", sig, time.Since(began))
				if now := n.plugin(c.mode); (now == was) != (n.kept != nil) {
					t.Errorf("process %d served before the host ended, and process %d serves after it", was, now)
				}
			}
			if after := n.kernelRules(c.rules); after != before {
				t.Errorf("rules were written again:\n%s", diffLines(before, after))
			}
			l.done("restarts of a host with " + c.mode)
		})
	}
}
