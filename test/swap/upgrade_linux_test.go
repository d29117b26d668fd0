// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newer builds the host and a plugin once more, so that each is another binary.
func (n *node) newer() {
	n.Helper()
	for name, from := range map[string]string{"pointsman": "./host/pointsman", "pointsman-dataplane-iptables": "./plugins/iptables/pointsman-dataplane-iptables"} {
		build := exec.Command("go", "build", "-tags", "failpoints", "-ldflags=-buildid=newer", "-o", n.path("newer/"+name), from)
		build.Dir = "../.."
		if out, err := build.CombinedOutput(); err != nil {
			n.Fatalf("%v: %s", err, out)
		}
	}
}

// ruled are the kernel's rules with the handle of each: one that is written again gets
// another.
func (n *node) ruled() string {
	n.Helper()
	out, err := exec.Command("nft", "-a", "list", "ruleset").Output()
	if err != nil {
		n.Skipf("nft lists the rules: %v", err)
	}
	return regexp.MustCompile(`counter packets \d+ bytes \d+`).ReplaceAllString(string(out), "counter")
}

// unnumbered leaves the handles out: the canary's Service came and went.
func unnumbered(rules string) string {
	return regexp.MustCompile(` # handle \d+`).ReplaceAllString(rules, "")
}

// restarts is how often a host is restarted: more in a soak.
func restarts() int {
	if os.Getenv("POINTSMAN_SOAK") != "" {
		return 20
	}
	return 4
}

// TestKernelHostRestarts kills the host and starts it again, by turns in each way.
// Nobody fails, the plugin's process stays, and no rule is written again.
func TestKernelHostRestarts(t *testing.T) {
	n := newNode(t, "iptables")
	n.start()
	l := n.newLoad()
	pid, before := n.plugin("iptables"), n.ruled()
	var longest time.Duration
	for round := range restarts() {
		if err := n.cmd.Process.Signal([]syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[round%2]); err != nil {
			t.Fatal(err)
		}
		n.gone(20 * time.Second)
		began := time.Now()
		n.start()
		longest = max(longest, time.Since(began))
		if now := n.plugin("iptables"); now != pid {
			t.Errorf("process %d serves, not %d", now, pid)
		}
	}
	if after := n.ruled(); after != before {
		t.Errorf("the rules were\n%s\nand are\n%s", before, after)
	}
	l.done("restarts of the host")
	t.Logf("%d restarts; from the start of a host to its first confirmed update at most %s", restarts(), longest.Round(time.Millisecond))
}

// TestKernelUpgrade replaces host and plugin by other binaries and back, in both
// orders. State that a newer host wrote is read by an older one.
func TestKernelUpgrade(t *testing.T) {
	n := newNode(t, "iptables")
	n.newer()
	older := map[string]string{"pointsman": "pointsman", "pointsman-dataplane-iptables": "plugins/pointsman-dataplane-iptables"}
	n.start()
	l := n.newLoad()
	before := n.ruled()
	host := func(from string) {
		n.copy(filepath.Join(from, "pointsman"), older["pointsman"])
		if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		n.gone(20 * time.Second)
		n.future()
		n.start()
	}
	plugin := func(from string) {
		was := n.plugin("iptables")
		n.copy(filepath.Join(from, "pointsman-dataplane-iptables"), older["pointsman-dataplane-iptables"])
		if out, err := n.verb("plugin", "restart", "iptables"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		n.until("the other binary serves", 60*time.Second, n.servesWith("iptables", was))
		n.settled("iptables")
	}
	newer := n.path("newer")
	for range max(1, restarts()/10) {
		host(newer)
		plugin(newer)
		host(built.dir)
		plugin(built.dir)
		plugin(newer)
		host(newer)
		plugin(built.dir)
		host(built.dir)
	}
	if after := unnumbered(n.ruled()); after != unnumbered(before) {
		t.Errorf("the rules were\n%s\nand are\n%s", before, after)
	}
	l.done("upgrades and downgrades")
}

// future adds to every file of the host's state what only a host to come would write.
func (n *node) future() {
	n.Helper()
	found := 0
	err := filepath.WalkDir(n.path("state"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".json" {
			return err
		}
		text, err := os.ReadFile(path)
		var all map[string]any
		if err == nil {
			err = json.Unmarshal(text, &all)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		all["fromTheFuture"] = map[string]int{"a": 1}
		found++
		text, err = json.Marshal(all)
		return errors.Join(err, os.WriteFile(path, text, 0o600))
	})
	if err != nil || found == 0 {
		n.Fatalf("%d files of state: %v", found, err)
	}
}

// TestKernelMajors has a plugin of another major: the host says what would fit, and
// serves on as it did.
func TestKernelMajors(t *testing.T) {
	n := newNode(t, "iptables")
	n.start()
	n.write("plugins/pointsman-dataplane-other", "#!/bin/sh\necho 'this plugin does not fit a host that speaks major 1: it speaks major 2 of the wire, which needs pointsman 2.0.0 or later' >&2\n"+
		"echo '1|2|unix|/nowhere|grpc|'\nsleep 60\n")
	if err := os.Chmod(n.path("plugins/pointsman-dataplane-other"), 0o755); err != nil {
		t.Fatal(err)
	}
	l := n.newLoad()
	out, err := n.verb("mode", "swap", "other", "--wait")
	if err == nil || !strings.Contains(out, "pointsman 2.0.0 or later") {
		t.Errorf("%v: %s", err, out)
	}
	l.done("a plugin of another major")
	_ = os.Remove(n.path("plugins/pointsman-dataplane-other"))
}
