// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/launch"
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
	if _, err := os.Stat(handleFile(y.plugin.StateDir, "")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the note of its process is left: %v", err)
	}
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

// A call that gets on no more is found long before its deadline, and where it stood is
// in the log.
func TestHungCallIsFound(t *testing.T) {
	y := newHarness(t, "hang")
	y.run()
	began := time.Now()
	first := y.until("up", func(s Status) bool { return s.State == Serving && s.PID != 0 })
	s := y.until("found", func(s Status) bool { return strings.Contains(s.LastEnd, "gets on no more") })
	t.Logf("found after %s: %s", time.Since(began).Round(time.Millisecond), s.LastEnd)
	wantGone(t, first.PID)
	y.until("logged what it was at", func(Status) bool { // which may come after its end
		y.mu.Lock()
		defer y.mu.Unlock()
		dump := strings.Join(y.logged, "\n")
		return strings.Contains(dump, "SIGQUIT") && strings.Contains(dump, "(*plugin).Sync")
	})
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

// A host that leaves its plugin, or is killed, is followed by one that goes on with
// it, or ends it if it does not answer.
func TestLeftBehind(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		t.Run(fmt.Sprintf("stopped=%t", stopped), func(t *testing.T) {
			y := newHarness(t, "serve")
			y.run()
			left := y.untilServing()
			y.host.Leave()
			y.stop()
			if _, err := launch.StartTime(left.PID); err != nil {
				t.Fatalf("the plugin did not outlive its host: %v", err)
			}
			if stopped {
				_ = syscall.Kill(left.PID, syscall.SIGSTOP)
			}
			y.run()
			if !stopped {
				y.until("serving on", func(s Status) bool { return s.State == Serving && s.PID == left.PID })
				return
			}
			y.until("serving again", func(s Status) bool { return s.State == Serving && s.PID != left.PID && s.PID != 0 })
			wantGone(t, left.PID)
		})
	}
}

// A host that is told to leave its plugin before it has attached to it leaves it, too, however
// far it came.
func TestLeftBehindAgain(t *testing.T) {
	y := newHarness(t, "serve")
	y.run()
	left := y.untilServing()
	y.host.Leave()
	y.stop()
	for _, came := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		next := New(y.plugin, quiet())
		next.Leave()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(came, cancel) // a deadline would be passed to the plugin, which might report first that it is over
		next.Run(ctx)
		if _, err := launch.StartTime(left.PID); err != nil {
			t.Fatalf("a host that ended after %s took its plugin along: %v", came, err)
		}
	}
	y.run()
	y.until("serving on", func(s Status) bool { return s.State == Serving && s.PID == left.PID })
}

// A plugin that something else keeps running is found when it comes, and again when
// it comes back; a restart asks it to end, and the host's end leaves it running.
func TestAddress(t *testing.T) {
	y := newHarness(t, "serve")
	socket := filepath.Join(shortDir(t), "own", "test.sock")
	y.plugin.Address, y.plugin.Path = "unix://"+socket, ""
	y.run()
	s := y.until("waiting", func(s Status) bool { return s.State == Waiting })
	if !strings.Contains(s.Why, socket) {
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
	if _, err := launch.StartTime(third.Process.Pid); err != nil {
		t.Errorf("the plugin went with the host: %v", err)
	}
	if _, err := os.Stat(handleFile(y.plugin.StateDir, "")); !os.IsNotExist(err) {
		t.Errorf("a later host would end it, by what this one left written down (%v)", err)
	}
}
