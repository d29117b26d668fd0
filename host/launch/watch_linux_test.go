// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestWatchReturnsWhyItEnded ends a process in each way. No process is left.
func TestWatchReturnsWhyItEnded(t *testing.T) {
	for name, c := range map[string]struct {
		how  string
		do   func(*harness)
		want string
	}{
		"it is not needed":        {"watched", func(y *harness) { y.over <- errors.New("no longer needed") }, "no longer needed"},
		"a signal":                {"watched", func(y *harness) { _ = syscall.Kill(y.process.Hello().PID, syscall.SIGKILL) }, "killed"},
		"it is stopped":           {"watched", func(y *harness) { _ = syscall.Kill(y.process.Hello().PID, syscall.SIGSTOP) }, "does not answer"},
		"a call without progress": {"hang", func(*harness) {}, "makes no progress"}, // long before its deadline
		"its connection is lost":  {"deaf", func(*harness) {}, "the connection to it was lost"},
		"a panic":                 {"panic", func(*harness) {}, "panic: no steam"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newHarness(t, c.how)
			y.run()
			if c.how == "watched" {
				y.untilBeats()
			}
			if d := y.process.Description; d.Version != "1.2.3" {
				t.Errorf("its description is %+v", d)
			}
			c.do(y)
			y.wantEnd(c.want)
			y.mu.Lock()
			defer y.mu.Unlock()
			if said := strings.Join(y.logged, "\n"); c.how == "panic" && (!strings.Contains(said, "panic: no steam") || !strings.Contains(said, "(*watchedPlugin).Sync")) {
				t.Errorf("the log is\n%s", said)
			}
		})
	}
}

// TestStartSaysWhyItFailed: a failed Start leaves no process.
func TestStartSaysWhyItFailed(t *testing.T) {
	for name, c := range map[string]struct {
		how, as string
		want    []string
	}{
		"it crashes":             {"crash", "test", []string{"no more coal", "code 3"}},
		"it refuses":             {"refuse", "test", []string{"the points are frozen", "heating them"}},
		"it has another name":    {"watched", "other", []string{`calls itself "test"`}},
		"it panics at the start": {"panic-early", "test", []string{"configure"}},
	} {
		t.Run(name, func(t *testing.T) {
			y := newHarness(t, c.how)
			y.plugin.Name = c.as
			err := y.start()
			if err == nil {
				t.Fatal("the process is up")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
			if _, refused := errors.AsType[*sdk.Refusal](err); refused != (c.how == "refuse") {
				t.Errorf("%v is a refusal: %t", err, refused)
			}
		})
	}
}

// TestAddress connects to a plugin that something else runs. A restart asks it to end; otherwise it continues.
func TestAddress(t *testing.T) {
	y := newHarness(t, "watched")
	socket := filepath.Join(shortDir(t), "own", "test.sock")
	y.plugin.Address, y.plugin.Path = "unix://"+socket, ""
	if err := y.start(); err == nil || !strings.Contains(err.Error(), socket) || !strings.Contains(err.Error(), "systemctl enable --now pointsman-dataplane@test") {
		t.Errorf("nothing listens: %v", err)
	}
	listener := y.listener(y.plugin.Address)
	y.untilStarted()
	if pid := y.process.Hello().PID; pid != listener.Process.Pid {
		t.Errorf("connected to process %d, and %d listens", pid, listener.Process.Pid)
	}
	y.over <- errors.New("no longer needed")
	y.wantEnd("no longer needed")
	if err := listener.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the plugin ended with the connection: %v", err)
	}
	y.untilStarted()
	y.over <- ErrRestart
	y.wantEnd(ErrRestart.Error())
	err := listener.Wait() // SIGTERM asks, too: on a busy machine it may be sent, and find the process on its way out
	if end, ok := listener.ProcessState.Sys().(syscall.WaitStatus); err != nil && !(ok && end.Signaled() && end.Signal() == syscall.SIGTERM) {
		t.Errorf("asked to end, the plugin ended with %v", err)
	}

	killed := y.listener(y.plugin.Address)
	y.untilStarted()
	_ = killed.Process.Kill()
	_ = killed.Wait()
	y.wantEnd("")
}
