// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk/helper"
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

// TestDeclaredHelpers: a helper that is declared outlives its plugin's crash and its end, and the
// restarted plugin adopts it. One of a plugin that dies with its process does not.
func TestDeclaredHelpers(t *testing.T) {
	for _, how := range []string{"stopped", "killed", "mortal"} {
		t.Run(how, func(t *testing.T) {
			y := newHarness(t, map[bool]string{true: "declares-mortal", false: "declares"}[how == "mortal"])
			y.run()
			first := y.untilServing()
			daemon := y.helper()
			if how == "stopped" {
				y.stop()
				y.run()
			} else {
				_ = syscall.Kill(first.PID, syscall.SIGKILL)
			}
			if how == "mortal" {
				wantGone(t, daemon)
				return
			}
			y.until("serving again", func(s Status) bool { return s.State == Serving && s.PID != first.PID })
			if now := y.helper(); now != daemon {
				t.Errorf("the restarted plugin has process %d, want %d", now, daemon)
			}
			time.Sleep(3 * helperGrace / 2)
			wantAlive(t, "the declared helper", daemon)
			for _, spare := range [][]string{nil, {y.plugin.StateDir}} {
				orphans, err := EndOrphans(t.Context(), y.plugin.StateDir, nil, spare, true)
				found := slices.ContainsFunc(orphans, func(o Orphan) bool { return o.PID == daemon })
				if found != (spare == nil) || err != nil {
					t.Errorf("where %q are spared: an orphan: %t, %v", spare, found, err)
				}
			}
		})
	}
}

// keepDaemon finds the helper that a former process left, or starts one, and writes down its pid as
// startHelper does.
func keepDaemon(ctx context.Context, stateDir string) error {
	dir := helper.Dir(stateDir)
	p, err := helper.Find(dir, "daemon")
	if errors.Is(err, helper.ErrNone) {
		p, err = helper.Start(ctx, dir, helper.Command{Name: "daemon", Path: "/bin/sleep", Args: []string{"600"}})
	}
	if err != nil {
		return err
	}
	return os.WriteFile("helper", []byte(strconv.Itoa(p.PID())), 0o600)
}
