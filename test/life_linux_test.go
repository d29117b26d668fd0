// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/test/eventually"
)

// servingSystem returns a system that serves one Service.
func servingSystem(t *testing.T) *system {
	t.Helper()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.start()
	s.serving()
	s.served("tcp", s.net+"10:18080")
	return s
}

// startAgain waits until the plugin of a host that ended has ended, starts another host, and waits until it serves.
func (s *system) startAgain(was int) {
	s.t.Helper()
	eventually.True(s.t, "the plugin has ended", func() bool { return !alive(was) })
	s.start()
	s.serving()
	s.served("tcp", s.net+"10:18080", at(s.net+"101"))
}

// TestHostEnds: a plugin ends with its host, whatever ends the host, and the next host serves.
func TestHostEnds(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"interrupted": syscall.SIGINT, "terminated": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := servingSystem(t)
			pid := s.plugin()
			s.signal(sig)
			if sig != syscall.SIGKILL {
				if code := s.cmd.ProcessState.ExitCode(); code != 0 {
					t.Errorf("the host ended with %d", code)
				}
				s.logged("plugin stopped")
				if _, err := os.Stat(s.path("admin.sock")); err == nil {
					t.Error("the admin socket is still there")
				}
			}
			s.startAgain(pid)
		})
	}
}

// TestSecondHost: a second host that shares either the stateDir or the admin socket with the first is refused.
func TestSecondHost(t *testing.T) {
	t.Parallel()
	s := servingSystem(t)
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

// TestCleanup: cleanup leaves alone what a running host uses.
func TestCleanup(t *testing.T) {
	t.Parallel()
	s := servingSystem(t)
	if got := s.verb("cleanup"); got.code != 0 || !strings.Contains(got.out, "left alone") {
		t.Errorf("cleanup beside a running host says %+v", got)
	}
	s.signal(syscall.SIGKILL)
	for range 2 {
		if got := s.verb("cleanup", "--kube-proxy"); got.code != 0 {
			t.Errorf("cleanup says %+v", got)
		}
	}
}
