// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// begun is a system that serves one Service.
func begun(t *testing.T) *system {
	t.Helper()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.start()
	s.serving()
	s.served("tcp", s.net+"10:18080")
	return s
}

// takenOver starts another host, which goes on with the process that was left
// behind.
func takenOver(s *system, left int) {
	s.t.Helper()
	s.start()
	s.serving()
	s.served("tcp", s.net+"10:18080", at(s.net+"101"))
	if now := s.plugin(); now != left {
		s.t.Errorf("process %d serves, not %d, which the former host left serving", now, left)
	}
}

// TestInterrupt stops host and plugin.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	s := begun(t)
	pid := s.plugin()
	s.signal(syscall.SIGINT)
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the host ended with %d", code)
	}
	if alive(pid) {
		t.Errorf("the plugin, process %d, is still there", pid)
	}
	s.logged("plugin stopped")
	if _, err := os.Stat(s.path("admin.sock")); err == nil {
		t.Error("the admin socket is still there")
	}
	s.start()
	s.served("tcp", s.net+"10:18080")
}

// TestTerminate ends the host and leaves the plugin serving; the next host takes
// over.
func TestTerminate(t *testing.T) {
	t.Parallel()
	s := begun(t)
	pid := s.plugin()
	s.signal(syscall.SIGTERM)
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the host ended with %d", code)
	}
	if !alive(pid) {
		t.Errorf("the plugin, process %d, has ended", pid)
	}
	s.logged("plugin left", fmt.Sprintf("pid %d serves on", pid))
	if strings.Contains(s.log(), "plugin stopped") {
		t.Error("the log says that the plugin was stopped")
	}
	for range 5 {
		if _, err := ask("tcp", s.net+"10:18080"); err != nil {
			t.Errorf("without a host: %v", err)
		}
	}
	takenOver(s, pid)
}

// TestHostKilled does so the hard way.
func TestHostKilled(t *testing.T) {
	t.Parallel()
	s := begun(t)
	pid := s.plugin()
	s.signal(syscall.SIGKILL)
	for range 5 {
		if _, err := ask("tcp", s.net+"10:18080"); err != nil {
			t.Errorf("without a host: %v", err)
		}
	}
	takenOver(s, pid)
}

// TestSecondHost is refused while the first one runs, whichever of the two places
// it shares with it.
func TestSecondHost(t *testing.T) {
	t.Parallel()
	s := begun(t)
	for _, tc := range []struct{ flag, other string }{
		{"--admin-socket", "other.sock"}, // the same stateDir
		{"--state-dir", "other"},         // the same socket
	} {
		got := s.verb("run", tc.flag, s.path(tc.other))
		if got.code != 1 || !strings.Contains(got.err, "another host") {
			t.Errorf("a second host with %s says %+v", tc.flag, got)
		}
	}
	s.served("tcp", s.net+"10:18080")
	if st, err := s.Status(t.Context()); err != nil || st.Dataplane.Restarts > 0 {
		t.Errorf("the first host was disturbed: %+v, %v", st.Dataplane, err)
	}
}

// TestCleanup ends what a killed host left behind, and says so.
func TestCleanup(t *testing.T) {
	t.Parallel()
	s := begun(t)
	pid := s.plugin()
	if got := s.verb("cleanup"); got.code != 0 || !strings.Contains(got.out, "left alone") {
		t.Errorf("cleanup beside a running host says %+v", got)
	}
	s.signal(syscall.SIGKILL)
	if got := s.verb("cleanup", "--dry-run"); got.code != 0 || !strings.Contains(got.out, fmt.Sprint(pid)) || !alive(pid) {
		t.Errorf("cleanup --dry-run says %+v; alive: %t", got, alive(pid))
	}
	if got := s.verb("cleanup", "--kube-proxy"); got.code != 0 || !strings.Contains(got.out, fmt.Sprint(pid)) || alive(pid) {
		t.Errorf("cleanup says %+v; alive: %t", got, alive(pid))
	}
	if got := s.verb("cleanup"); got.code != 0 || strings.Contains(got.out, fmt.Sprint(pid)) {
		t.Errorf("cleanup of a clean node says %+v", got)
	}
}
