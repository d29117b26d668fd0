// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
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
	s.served(s.net + "10:18080")
	return s
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
			eventually.True(t, "the plugin has ended", func() bool { return !alive(pid) })
			s.start()
			s.served(s.net+"10:18080", at(s.net+"101"))
		})
	}
}
