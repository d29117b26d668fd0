// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/helper"
	"github.com/pointsman/pointsman/test/built"
)

// TestHelpersAreCleanedUp: what a plugin has declared is shown by its name, runs on when the host and
// the plugin have ended, and is found by the plugin's cleanup, which a host tells where it is declared.
func TestHelpersAreCleanedUp(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.plugins = s.path("plugins")
	if err := errors.Join(
		built.Into(s.plugins, "", "./test/wrapper"),
		os.Rename(filepath.Join(s.plugins, "wrapper"), filepath.Join(s.plugins, "pointsman-dataplane-wrapper")),
	); err != nil {
		t.Fatal(err)
	}
	s.config("")
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.start("--mode", "wrapper")
	s.serving()
	declared := s.declared("wrapper")
	s.until("status names the helper", func() error { return s.namesHelper(declared) })
	want := fmt.Sprintf("daemon (pid %d, /bin/sleep), ", declared.PID)
	if got := s.verb("plugin", "info", "wrapper"); got.code != 0 || !strings.Contains(got.out, want) {
		t.Errorf("plugin info says %+v, want %q", got, want)
	}

	left := s.plugin()
	t.Cleanup(func() { _ = syscall.Kill(left, syscall.SIGKILL) })
	s.signal(syscall.SIGTERM)
	if got := s.verb("cleanup", "--dry-run"); got.code != 0 || !strings.Contains(got.out, fmt.Sprint(declared.PID)) || !declared.Runs() || !alive(left) {
		t.Errorf("cleanup --dry-run says %+v, and the helper runs: %t", got, declared.Runs())
	}
	got := s.verb("cleanup")
	if got.code != 0 || !strings.Contains(got.out, fmt.Sprint(declared.PID)) || declared.Runs() || alive(left) {
		t.Errorf("cleanup says %+v; the helper, process %d, runs: %t; the plugin: %t", got, declared.PID, declared.Runs(), alive(left))
	}
	if rest, err := helper.All(s.helperDir("wrapper")); err != nil || len(rest) > 0 {
		t.Errorf("declared after the cleanup: %v, %v", rest, err)
	}
}

func (s *system) helperDir(mode string) string {
	return helper.Dir(s.path(filepath.Join("state", "plugins", mode)))
}

// declared is the only helper of a plugin. It ends with the test.
func (s *system) declared(mode string) helper.Record {
	s.t.Helper()
	all, err := helper.All(s.helperDir(mode))
	if err != nil || len(all) != 1 || !all[0].Runs() {
		s.t.Fatalf("helpers %v, want one that runs: %v", all, err)
	}
	s.t.Cleanup(func() {
		if all[0].Runs() {
			_ = syscall.Kill(all[0].PID, syscall.SIGKILL)
		}
	})
	return all[0]
}

// namesHelper says what is wrong where status names another helper than this one.
func (s *system) namesHelper(want helper.Record) error {
	var st admin.Status
	got := s.verb("status", "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &st); err != nil {
		return fmt.Errorf("%+v: %w", got, err)
	}
	list := st.Dataplane.Helpers
	if len(list) != 1 || list[0].Name != want.Name || list[0].PID != want.PID || list[0].Path != want.Path || list[0].Memory == 0 {
		return fmt.Errorf("helpers %+v, want %s", list, want)
	}
	return nil
}
