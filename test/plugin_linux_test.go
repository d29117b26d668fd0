// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPluginDoesNotStart begins with something that is no working plugin. The host
// lives and says what is the matter; with the right binary in place it serves.
func TestPluginDoesNotStart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		put  func(t *testing.T, file string)
		why  string // part of what status says
	}{
		{"not executable", func(t *testing.T, file string) { copyFile(t, plugin(t), file, 0o644) }, "not executable"},
		{"of another architecture", otherArchitecture, "exec format error"},
		{"crashing at start", script("echo this machine is not for me >&2\nexit 3"), "this machine is not for me"},
		{"no plugin at all", script("echo hello"), "hello"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			s.plugins = s.path("plugins")
			if err := os.Mkdir(s.plugins, 0o755); err != nil {
				t.Fatal(err)
			}
			s.config("")
			file := filepath.Join(s.plugins, userspace)
			tc.put(t, file)
			backend(t, at(s.net+"101"))
			s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
			s.start()
			s.until("status says what is the matter", func() error { return s.warning("W001", tc.why) })
			got := s.verb("status")
			if got.code != 2 || !strings.Contains(got.out, tc.why) {
				t.Errorf("status says %+v", got)
			}
			t.Logf("status says\n%s", got.out)
			s.until("there is an event", func() error { return s.event("PluginDown", tc.why) })

			_ = os.Remove(file)
			copyFile(t, plugin(t), file+".new", 0o755)
			if err := os.Rename(file+".new", file); err != nil {
				t.Fatal(err)
			}
			s.served("tcp", s.net+"10:18080")
		})
	}
}

// TestPluginNotThere: a host whose mode has no plugin refuses to start, and says which there are.
func TestPluginNotThere(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(file string) error{
		"nothing":     func(string) error { return nil },
		"a directory": func(file string) error { return os.Mkdir(file, 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			s.plugins = s.path("plugins")
			if err := os.Mkdir(s.plugins, 0o755); err != nil {
				t.Fatal(err)
			}
			s.config("")
			if err := put(filepath.Join(s.plugins, userspace)); err != nil {
				t.Fatal(err)
			}
			copyFile(t, plugin(t), filepath.Join(s.plugins, "pointsman-dataplane-acme"), 0o755)
			got := s.verb("run", "--plugin-dir", s.plugins)
			if got.code != 64 || !strings.Contains(got.err, "mode userspace") || !strings.Contains(got.err, "it has no plugin here") || !strings.Contains(got.err, "acme") {
				t.Errorf("it says %+v", got)
			}
			if _, err := os.Stat(s.path("admin.sock")); err == nil {
				t.Error("it leaves its admin socket behind")
			}
		})
	}
}

// plugin is the built plugin.
func plugin(t *testing.T) string { return filepath.Join(binaries(t), "plugins", userspace) }

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// otherArchitecture is the plugin with a header that names a machine which is not
// this one.
func otherArchitecture(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(plugin(t))
	if err != nil {
		t.Fatal(err)
	}
	data[18], data[19] = 0x16, 0 // e_machine: IBM S/390
	if err := os.WriteFile(file, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

func script(text string) func(*testing.T, string) {
	return func(t *testing.T, file string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// replacesStopped stops the plugin without ending it, and waits until the host has noticed and replaced it.
func (s *system) replacesStopped() {
	s.t.Helper()
	pid := s.plugin()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
	s.until("another process serves", func() error {
		st, err := s.Status(s.t.Context())
		switch {
		case err != nil:
			return err
		case st.Dataplane.PID == pid || st.Dataplane.State != "serving":
			return fmt.Errorf("dataplane is %s, process %d: %s", st.Dataplane.State, st.Dataplane.PID, st.Dataplane.Why)
		}
		return nil
	})
	s.served("tcp", s.net+"10:18080")
	if alive(pid) {
		s.t.Errorf("the stopped process %d is still there", pid)
	}
}
