// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// orphan ends the host of s, and loses what it wrote down of the plugin that serves on.
func orphan(s *system, lose ...string) (pid int) {
	s.t.Helper()
	pid = s.plugin()
	s.t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // else nothing ends it where the test fails
	s.signal(syscall.SIGTERM)
	for _, name := range lose {
		if err := os.RemoveAll(s.path(name)); err != nil {
			s.t.Fatal(err)
		}
	}
	if !alive(pid) {
		s.t.Fatalf("the plugin, process %d, has ended with its host", pid)
	}
	return pid
}

// TestOrphanedPlugin: a host that finds the plugin of a former one, and has lost what was
// written down of it, ends it, so that its own serves what is changed from then on.
func TestOrphanedPlugin(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]string{"process.json": "state/plugins/userspace/process.json", "the whole directory": "state"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begun(t)
			old := orphan(s, lose)
			s.manifest("web.yaml", tcpService("web", "NET.11", 18080, "NET.101"))
			s.start()
			s.served("tcp", s.net+"11:18080", at(s.net+"101"))
			if alive(old) {
				t.Errorf("the plugin of the former host, process %d, still runs", old)
			}
			if now := s.plugin(); now == old {
				t.Errorf("process %d serves, of which nothing is known", now)
			}
			s.until("an event says so", func() error { return s.event("PluginStopped", fmt.Sprintf("process %d", old)) })
		})
	}
}

// TestOrphansOfOthers: the plugin of a host with another state directory is left alone,
// also where that host has ended.
func TestOrphansOfOthers(t *testing.T) {
	t.Parallel()
	living, gone := begun(t), begun(t)
	left := orphan(gone)
	begun(t)
	for _, pid := range []int{living.plugin(), left} {
		if !alive(pid) {
			t.Errorf("process %d of another host was ended", pid)
		}
	}
	takenOver(gone, left)
}
