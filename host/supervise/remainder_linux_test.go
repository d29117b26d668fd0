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

// TestRemainderEnds: a process that the plugin started in a session of its own runs on while the
// plugin lives, and ends with the plugin, stopped or killed.
func TestRemainderEnds(t *testing.T) {
	for _, how := range []string{"stopped", "killed"} {
		t.Run(how, func(t *testing.T) {
			y := newHarness(t, "daemon")
			y.run()
			left := y.untilServing()
			daemon := y.daemon()
			time.Sleep(3 * remainderGrace / 2)
			wantAlive(t, "the daemon of a plugin that lives", daemon)
			switch how {
			case "stopped":
				y.stop()
			case "killed":
				_ = syscall.Kill(left.PID, syscall.SIGKILL)
			}
			wantGone(t, daemon)
		})
	}
}

// TestRemainderOfAnOrphanEnds also where the plugin was killed while no host ran.
func TestRemainderOfAnOrphanEnds(t *testing.T) {
	y, pid := orphaned(t, "daemon")
	daemon := y.daemon()
	_ = syscall.Kill(pid, syscall.SIGKILL)
	wantGone(t, pid)
	if o := foundOrphan(t, y.plugin.StateDir, daemon); o.PID == 0 || o.Err != nil || o.Alone != "" {
		t.Errorf("found %+v; want it ended", o)
	}
	wantGone(t, daemon)
}

// daemon returns the pid of the process that the plugin has started.
func (y *harness) daemon() int {
	y.Helper()
	text, err := os.ReadFile(filepath.Join(y.plugin.StateDir, "daemon"))
	if err != nil {
		y.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		y.Fatal(err)
	}
	y.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	wantAlive(y.T, "the daemon", pid)
	return pid
}

// startDaemon starts a process that has no parent here and a session of its own, and ignores
// SIGTERM. The process writes its pid to the file daemon.
func startDaemon() error {
	return exec.Command("sh", "-c", `trap "" TERM; setsid sh -c 'echo $$ > daemon.new; mv daemon.new daemon; exec sleep 600' </dev/null >/dev/null 2>&1 & while ! [ -e daemon ]; do sleep 0.01; done`).Run()
}
