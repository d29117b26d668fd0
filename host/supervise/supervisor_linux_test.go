// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestServesUntilItIsStopped(t *testing.T) {
	y := newHarness(t, "serve")
	y.run()
	s := y.untilServing()
	if s.Version != "1.2.3" || s.PID == 0 || s.Restarts != 0 {
		t.Errorf("status %+v", s)
	}
	y.stop()
	wantGone(t, s.PID)
	if s := y.host.Status(); s.State != Stopped || s.PID != 0 {
		t.Errorf("after the end: %+v", s)
	}
	y.wantSessions(1)
}

func TestKilledAndBack(t *testing.T) {
	y := newHarness(t, "serve")
	y.run()
	first := y.untilServing()
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := y.until("back", func(s Status) bool { return s.State == Serving && s.PID != first.PID && s.PID != 0 })
	if second.Restarts != 1 || !strings.Contains(second.LastEnd, "killed") {
		t.Errorf("status %+v does not say that it was killed once", second)
	}
	y.until("in its second session", func(Status) bool { y.mu.Lock(); defer y.mu.Unlock(); return y.sessions == 2 })
}

func TestHungIsKilledAndBack(t *testing.T) {
	y := newHarness(t, "serve")
	y.run()
	first := y.untilServing()
	if err := syscall.Kill(first.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	y.until("back", func(s Status) bool { return s.State == Serving && s.PID != first.PID && s.PID != 0 })
	wantGone(t, first.PID)
}

// A call that makes no progress is found long before its deadline.
func TestHungCallIsFound(t *testing.T) {
	y := newHarness(t, "hang")
	y.run()
	first := y.until("up", func(s Status) bool { return s.State == Serving && s.PID != 0 })
	y.until("found", func(s Status) bool { return strings.Contains(s.LastEnd, "makes no progress") })
	wantGone(t, first.PID)
}

// A process whose connection is lost is ended, because no other connection to it is made.
func TestLostConnectionIsTheEnd(t *testing.T) {
	y := newHarness(t, "deaf")
	y.run()
	first := y.until("up", func(s Status) bool { return s.State == Serving && s.PID != 0 })
	y.until("ended", func(s Status) bool { return s.LastEnd == "the connection to it was lost" })
	wantGone(t, first.PID)
}

// What a plugin prints as it crashes is in its log.
func TestPanicIsLogged(t *testing.T) {
	y := newHarness(t, "panic")
	y.run()
	y.until("ended", func(s Status) bool { return strings.Contains(s.LastEnd, "panic: no steam") })
	y.mu.Lock()
	defer y.mu.Unlock()
	if said := strings.Join(y.logged, "\n"); !strings.Contains(said, "panic: no steam") || !strings.Contains(said, "(*plugin).Sync") {
		t.Errorf("the log is\n%s", said)
	}
}

func TestCrashingAtStartSaysWhy(t *testing.T) {
	y := newHarness(t, "crash")
	y.run()
	s := y.until("tried three times", func(s Status) bool { return s.Restarts >= 3 && s.State == Waiting })
	if !strings.Contains(s.Why, "no more coal") || !strings.Contains(s.Why, "code 3") {
		t.Errorf("status says %q, not that it exited with code 3 and its last words", s.Why)
	}
	y.install("serve")
	y.untilServing()
}

func TestRefusedUntilItChanges(t *testing.T) {
	y := newHarness(t, "refuse")
	y.run()
	s := y.until("refused", func(s Status) bool { return s.State == Refused })
	if !strings.Contains(s.Why, "the points are frozen") || !strings.Contains(s.Why, "heating them") {
		t.Errorf("status says %q", s.Why)
	}
	y.install("serve")
	y.untilServing()
}

func TestMissingUntilItIsInstalled(t *testing.T) {
	y := newHarness(t, "serve")
	away := y.plugin.Path + ".away"
	if err := os.Rename(y.plugin.Path, away); err != nil {
		t.Fatal(err)
	}
	y.run()
	s := y.until("waiting", func(s Status) bool { return s.State == Waiting })
	if !strings.Contains(s.Why, y.plugin.Path) || !strings.Contains(s.Why, "no such file") {
		t.Errorf("status says %q", s.Why)
	}
	if err := os.Rename(away, y.plugin.Path); err != nil {
		t.Fatal(err)
	}
	y.untilServing()
}

func TestAnotherName(t *testing.T) {
	y := newHarness(t, "serve")
	y.plugin.Name = "other"
	y.run()
	s := y.until("waiting", func(s Status) bool { return s.State == Waiting })
	if !strings.Contains(s.Why, `calls itself "test"`) {
		t.Errorf("status says %q", s.Why)
	}
}

func TestRestart(t *testing.T) {
	y := newHarness(t, "serve")
	y.run()
	first := y.untilServing()
	y.host.Restart("someone asked")
	y.until("another process", func(s Status) bool { return s.State == Serving && s.PID != 0 && s.PID != first.PID })
	wantGone(t, first.PID)
}

// A plugin that something else keeps running is found when it comes, and again when
// it comes back; a restart asks it to end, and the host's end leaves it running.
func TestAddress(t *testing.T) {
	y := newHarness(t, "serve")
	socket := filepath.Join(shortDir(t), "own", "test.sock")
	y.plugin.Address, y.plugin.Path = "unix://"+socket, ""
	y.run()
	s := y.until("waiting", func(s Status) bool { return s.State == Waiting })
	if !strings.Contains(s.Why, socket) || !strings.Contains(s.Why, "systemctl enable --now pointsman-dataplane@test") {
		t.Errorf("status says %q", s.Why)
	}
	first := y.listener(y.plugin.Address)
	y.until("connected", func(s Status) bool { return s.State == Serving && s.PID == first.Process.Pid })

	_ = first.Process.Kill()
	_ = first.Wait()
	y.until("noticed", func(s Status) bool { return s.State != Serving })
	second := y.listener(y.plugin.Address)
	y.until("connected to the next", func(s Status) bool { return s.State == Serving && s.PID == second.Process.Pid })

	y.host.Restart("someone asked")
	err := second.Wait() // SIGTERM asks, too: on a busy machine it may be sent, and find the process on its way out
	if end, ok := second.ProcessState.Sys().(syscall.WaitStatus); err != nil && !(ok && end.Signaled() && end.Signal() == syscall.SIGTERM) {
		t.Errorf("asked to end, the plugin ended with %v", err)
	}
	third := y.listener(y.plugin.Address)
	y.until("connected to the third", func(s Status) bool { return s.State == Serving && s.PID == third.Process.Pid })
	y.stop()
	if err := third.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the plugin went with the host: %v", err)
	}
}
