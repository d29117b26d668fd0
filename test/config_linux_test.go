// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestWrongConfig: a host with an invalid config file does not start, and launches no plugin. Package config tests what
// a file may say; the options are checked by the plugin.
func TestWrongConfig(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for _, tc := range []struct{ name, text, says string }{
		{"unknown field", s.text("sycnPeriod: 1s\n"), "sycnPeriod: unknown field; try: "},
		{"an option's name", strings.Replace(s.text(""), "redirect:", "redirct:", 1), "host.yaml: plugins.userspace.options"},
		{"an option's value", strings.Replace(s.text(""), "redirect: never", "redirect: nevr", 1), "host.yaml: plugins.userspace.options.redirect: "},
	} {
		s.write("host.yaml", tc.text)
		for _, verb := range [][]string{{"run"}, {"config", "validate", s.path("host.yaml")}} {
			if got := s.verb(verb...); got.code != 1 || !strings.Contains(got.err+got.out, tc.says) {
				t.Errorf("%s: %s says %+v, want %q", tc.name, verb, got, tc.says)
			}
		}
	}
	if _, err := os.Stat(s.path("state/plugins")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a plugin was started: %v", err)
	}
}

// TestConfigFollowed changes the config file under a running host, which also reads it again at SIGHUP.
func TestConfigFollowed(t *testing.T) {
	t.Parallel()
	s := servingSystem(t)
	pid := s.plugin()
	s.write("host.yaml", s.text("sycnPeriod: 1s\n"))
	s.until("the status warns of the unknown field", func() error { return s.warning("W005", "sycnPeriod") })
	s.logged("config refused", "sycnPeriod", "the host keeps its settings")
	if got := s.verb("status", "--admin-socket", s.path("admin.sock")); got.code != 2 || !strings.Contains(got.out, "W005") {
		t.Errorf("status says %+v", got)
	}
	s.config("")
	s.until("the warning is gone", func() error { return s.noWarning("W005") })

	if strings.Contains(s.log(), "[DEBUG]") {
		t.Error("there is a line at debug level, and the level is info")
	}
	s.config("logging: {level: debug}\n")
	s.logged("config taken", "changed: logging.level")
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101", "NET.102"))
	s.logged("[DEBUG]", "update confirmed")

	s.config("hostnameOverride: other\n")
	s.until("the status warns of the field that needs a restart", func() error { return s.warning("W006", "hostnameOverride") })
	s.config("")
	s.until("nothing waits for a restart", func() error { return s.noWarning("W006") })

	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.logged("config taken", "nothing changed")
	s.served("tcp", s.net+"10:18080")
	if now := s.plugin(); now != pid {
		t.Errorf("process %d serves, not %d", now, pid)
	}
}

// TestOptionsFollowed changes the options of the active plugin: a new process takes over with them. Options that the
// plugin refuses change nothing.
func TestOptionsFollowed(t *testing.T) {
	t.Parallel()
	s := servingSystem(t)
	s.served("tcp", s.net+"10:18080")
	pid := s.plugin()
	with := func(options string) { s.write("host.yaml", strings.Replace(s.text(""), "redirect: never", options, 1)) }
	for options, says := range map[string]string{
		"redirect: never, udpIdleTimeout: soon": "host.yaml: plugins.userspace.options.udpIdleTimeout: ",
		"redirect: auto":                        "host.yaml: plugins.userspace.options.redirect: cannot change while userspace serves",
	} {
		with(options)
		s.until("the status warns of the wrong options", func() error { return s.warning("W005", says) })
		if now := s.plugin(); now != pid {
			t.Errorf("%s: process %d serves, not %d", options, now, pid)
		}
	}
	with("redirect: never, udpIdleTimeout: 1m")
	s.until("another process serves", func() error {
		st, err := s.Status(t.Context())
		if err == nil && (st.Dataplane.PID == pid || st.Dataplane.PID == 0 || st.Dataplane.State != "serving" || st.Swap != nil) {
			err = fmt.Errorf("%+v, %+v", st.Dataplane, st.Swap)
		}
		return err
	})
	s.until("the file is in force", func() error { return errors.Join(s.noWarning("W005"), s.noWarning("W006")) })
	s.served("tcp", s.net+"10:18080")
	s.logged("config taken", "changed: plugins.userspace.options")
}
