// SPDX-License-Identifier: Apache-2.0

package privileges

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/test/traced"
)

// TestKernelAskedByHand: a plugin's verbs for people write nothing, neither to a file nor to the kernel, beside rules
// of kube-proxy's in both backends of iptables and in tables of its own.
func TestKernelAskedByHand(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it writes rules, in a namespace of its own")
	}
	if prebuilt() != "" {
		t.Skip("the kernel of the ipvs suite is too slow to be traced")
	}
	traced.Need(t)
	const left = "*nat\n:KUBE-SERVICES -\n:KUBE-MARK-MASQ -\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n*filter\n:KUBE-FORWARD -\n-A FORWARD -j KUBE-FORWARD\nCOMMIT\n"
	for _, program := range []string{"iptables-nft-restore", "iptables-legacy-restore"} {
		feed(t, exec.CommandContext(t.Context(), program, "-n"), left)
	}
	feed(t, exec.CommandContext(t.Context(), "nft", "-f", "-"), "add table ip kube-proxy\n")
	t.Cleanup(func() {
		feed(t, exec.Command("nft", "-f", "-"), "flush ruleset\n")
		feed(t, exec.Command("iptables-legacy-restore"), "*nat\nCOMMIT\n*filter\nCOMMIT\n")
	})
	for _, plugin := range []string{"iptables", "nftables", "userspace", "ipvs"} {
		binary := build(t, plugin)
		for _, words := range []string{"check", "cleanup --dry-run", "cleanup --dry-run --kube-proxy"} {
			if words == "check" && plugin == "ipvs" {
				continue // it loads a module
			}
			cmd := exec.CommandContext(t.Context(), binary, strings.Fields(words)...)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			written, err := traced.Written(t.TempDir(), cmd)
			if err != nil {
				t.Fatalf("%s %s: %v: %s", plugin, words, err, &out)
			}
			// Legacy iptables opens its lock even if it only lists a rule.
			written = slices.DeleteFunc(written, func(call string) bool { return strings.Contains(call, "/xtables.lock\", O_RDONLY|O_CREAT") })
			if !cmd.ProcessState.Success() {
				t.Errorf("%s %s: %v: %s", plugin, words, cmd.ProcessState, &out)
			}
			if plugin != "ipvs" && strings.HasSuffix(words, "kube-proxy") && !strings.Contains(out.String(), "would remove ") {
				t.Errorf("%s %s sees nothing: %s", plugin, words, &out)
			}
			if len(written) > 0 {
				t.Errorf("%s %s writes:\n%s", plugin, words, strings.Join(written, "\n"))
			}
		}
	}
}

// feed passes text to a program.
func feed(t *testing.T, cmd *exec.Cmd, text string) {
	t.Helper()
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", cmd.Args, err, out)
	}
}
