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

	"github.com/pointsman/pointsman/test/built"
)

// TestPluginDoesNotStart starts a host whose plugin exits at once. The host lives and reports why, and serves once the
// right binary is in place. TestLaunchFails has each way for a launch to fail.
func TestPluginDoesNotStart(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.plugins = s.path("plugins")
	file := filepath.Join(s.plugins, userspace)
	const why = "this machine is not for me"
	err := errors.Join(os.Mkdir(s.plugins, 0o755), os.WriteFile(file, []byte("#!/bin/sh\necho "+why+" >&2\nexit 3\n"), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	s.config("")
	backend(t, at(s.net+"101"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.start()
	s.until("the status warns that the dataplane does not serve", func() error { return s.warning("W001", why) })
	if got := s.verb("status"); got.code != 2 || !strings.Contains(got.out, why) {
		t.Errorf("status says %+v", got)
	}
	s.until("there is an event", func() error { return s.event("PluginDown", why) })

	if err := built.Place(plugin(t), file); err != nil {
		t.Fatal(err)
	}
	s.served(s.net + "10:18080")
}

// plugin returns the path of the userspace plugin.
func plugin(t *testing.T) string { return filepath.Join(binaries(t), "plugins", userspace) }

// replacesStopped sends SIGSTOP to the plugin, and waits until the host has replaced it.
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
	s.served(s.net + "10:18080")
	if alive(pid) {
		s.t.Errorf("the suspended process %d still runs", pid)
	}
}
