// SPDX-License-Identifier: Apache-2.0

package test

import (
	"strings"
	"syscall"
	"testing"
)

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
	s.served(s.net + "10:18080")
	if now := s.plugin(); now != pid {
		t.Errorf("process %d serves, not %d", now, pid)
	}
}
