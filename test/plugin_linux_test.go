// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
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

// TestPluginKilled kills the plugin three times. Each time another one serves all
// there is, and what changed meanwhile.
func TestPluginKilled(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	backend(t, at(s.net+"102"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.start()
	s.serving()
	for n := range 3 {
		pid := s.plugin()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		to := fmt.Sprintf("%s10%d", s.net, 1+(n+1)%2)
		s.manifest("web.yaml", tcpService("web", "NET.10", 18080, to))
		s.served("tcp", s.net+"10:18080", at(to))
		s.until("status tells of it", func() error { return s.warning("W002", "signal") })
		s.until("status tells of the process that serves", func() error { // which is up before that is shown
			st, err := s.Status(t.Context())
			if err == nil && st.Dataplane.PID == 0 {
				err = errors.New(st.Dataplane.State)
			}
			return err
		})
		if now := s.plugin(); now == pid || alive(pid) {
			t.Errorf("process %d serves, and %d was killed (alive: %t)", now, pid, alive(pid))
		}
	}
	s.until("there is an event", func() error { return s.event("PluginDown", "signal") })
	if st, err := s.Status(t.Context()); err != nil || st.Dataplane.Restarts < 3 {
		t.Errorf("%d restarts: %v", st.Dataplane.Restarts, err)
	}
}

// TestPluginStopped stops the plugin without ending it: it answers nothing, is
// noticed, and replaced.
func TestPluginStopped(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.start()
	s.serving()
	pid := s.plugin()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.until("another process serves", func() error {
		st, err := s.Status(t.Context())
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
		t.Errorf("the stopped process %d is still there", pid)
	}
}

// TestPluginRestarted starts it anew because someone asks for it.
func TestPluginRestarted(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.start()
	s.serving()
	pid := s.plugin()
	for _, verb := range []string{"restart", "logs"} {
		if got := s.verb("plugin", verb, "usrspace"); got.code != 1 || !strings.Contains(got.err, "there is userspace; try: pointsman plugin list") {
			t.Errorf("plugin %s of a name that is wrong says %+v", verb, got)
		}
	}
	if got := s.verb("plugin", "restart", "userspace"); got.code != 0 {
		t.Fatalf("plugin restart says %+v", got)
	}
	s.until("another process serves", func() error {
		st, err := s.Status(t.Context())
		if err == nil && (st.Dataplane.PID == pid || st.Dataplane.State != "serving") {
			err = fmt.Errorf("dataplane is %s, process %d", st.Dataplane.State, st.Dataplane.PID)
		}
		return err
	})
	s.served("tcp", s.net+"10:18080")
}
