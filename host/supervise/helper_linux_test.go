// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestHelpersEnd: what a plugin has started in a session of its own ends with it, whether
// it is stopped or killed; while it lives it is left alone.
func TestHelpersEnd(t *testing.T) {
	for _, how := range []string{"stopped", "killed"} {
		t.Run(how, func(t *testing.T) {
			y := newHarness(t, "helper")
			y.run()
			left := y.untilServing()
			helper := y.helper()
			time.Sleep(3 * helperGrace / 2)
			wantAlive(t, "the helper of a plugin that lives", helper)
			switch how {
			case "stopped":
				y.stop()
			case "killed":
				_ = syscall.Kill(left.PID, syscall.SIGKILL)
			}
			wantGone(t, helper)
		})
	}
}

// TestHelpersOfAnOrphanEnd: they are found also when the plugin was killed while no host ran.
func TestHelpersOfAnOrphanEnd(t *testing.T) {
	y, pid := orphaned(t, "helper")
	helper := y.helper()
	_ = syscall.Kill(pid, syscall.SIGKILL)
	wantGone(t, pid)
	if o := foundOrphan(t, y.plugin.StateDir, helper); o.PID == 0 || o.Err != nil || o.Alone != "" {
		t.Errorf("found %+v; want it ended", o)
	}
	wantGone(t, helper)
}

// helper is the process that the plugin has started.
func (y *harness) helper() int {
	y.Helper()
	text, err := os.ReadFile(filepath.Join(y.plugin.StateDir, "helper"))
	if err != nil {
		y.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		y.Fatal(err)
	}
	y.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	wantAlive(y.T, "the helper", pid)
	return pid
}

// startHelper starts a process that has no parent here and in a session of its own, and
// ignores SIGTERM.
func startHelper() error {
	return exec.Command("sh", "-c", `trap "" TERM; setsid sh -c 'echo $$ > helper.new; mv helper.new helper; exec sleep 600' </dev/null >/dev/null 2>&1 & while ! [ -e helper ]; do sleep 0.01; done`).Run()
}
