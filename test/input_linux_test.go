// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// event finds an event by its reason and a part of its message.
func (s *system) event(reason, part string) error {
	events, err := s.Events(s.t.Context())
	if err != nil {
		return err
	}
	var seen []string
	for _, e := range events.Items {
		if e.Reason == reason && strings.Contains(e.Object+": "+e.Message, part) {
			return nil
		}
		seen = append(seen, e.Reason+" "+e.Object+": "+e.Message)
	}
	return fmt.Errorf("no event %s with %q among:\n%s", reason, part, strings.Join(seen, "\n"))
}

// warning finds a warning of the status by its code and a part of its text.
func (s *system) warning(code, part string) error {
	st, err := s.Status(s.t.Context())
	if err != nil {
		return err
	}
	for _, w := range st.Warnings {
		if w.Code == code && strings.Contains(w.Text, part) {
			return nil
		}
	}
	return fmt.Errorf("no warning %s with %q in %+v", code, part, st.Warnings)
}

// noWarning returns an error if the status has a warning with this code.
func (s *system) noWarning(code string) error {
	if err := s.warning(code, ""); err == nil {
		st, _ := s.Status(s.t.Context())
		return fmt.Errorf("%s is still there: %+v", code, st.Warnings)
	}
	return nil
}

// logged waits for a line of the host's log that contains all parts.
func (s *system) logged(parts ...string) {
	s.t.Helper()
	s.until(fmt.Sprintf("the log has a line with %q", parts), func() error {
		for line := range strings.Lines(s.log()) {
			if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
				return nil
			}
		}
		return errors.New("it has none")
	})
}

// TestBrokenManifest writes an invalid manifest and corrects it. The warning names file, object and field; all other
// Services, and the last valid content of the file, are served meanwhile.
func TestBrokenManifest(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	backend(t, at(s.net+"102"))
	s.manifest("good.yaml", tcpService("good", "NET.10", 18080, "NET.101"))
	s.manifest("web.yaml", tcpService("web", "NET.11", 18080, "NET.101"))
	s.start()
	s.serving()

	s.manifest("web.yaml", strings.Replace(tcpService("web", "NET.11", 18080, "NET.102"), "clusterIP", "clusterip", 1))
	s.logged("web.yaml:1", "Service ns/web", "unknown field", "spec.clusterip")
	s.until("the status warns of the invalid field", func() error { return s.warning("W007", "web.yaml:1: Service ns/web") })
	if got := s.verb("status"); got.code != 2 || !strings.Contains(got.out, "web.yaml:1") {
		t.Errorf("status says %+v", got)
	}
	s.served("tcp", s.net+"10:18080")
	s.served("tcp", s.net+"11:18080")

	s.manifest("web.yaml", "kind: [this is no\n\tYAML")
	s.until("the status warns of the invalid YAML", func() error { return s.warning("W007", "yaml: line 2") })
	s.served("tcp", s.net+"11:18080")

	s.manifest("web.yaml", tcpService("web", "NET.11", 18080, "NET.102"))
	s.served("tcp", s.net+"11:18080", at(s.net+"102"))
	s.until("status has forgotten it", func() error { return s.noWarning("W007") })
}

// TestFlood changes a manifest ten thousand times. The last change is served, and neither process grows.
func TestFlood(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	backend(t, at(s.net+"102"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.start()
	s.serving()
	before := [2]int{residentMemory(t, s.cmd.Process.Pid), residentMemory(t, s.plugin())}
	restarts := func() int {
		st, err := s.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.Dataplane.Restarts
	}
	for n := range 10_000 {
		s.manifest("web.yaml", tcpService("web", "NET.10", 18080, fmt.Sprintf("NET.10%d", 1+n%2)))
	}
	s.manifest("web.yaml", tcpService("web", "NET.11", 18080, "NET.102"))
	s.served("tcp", s.net+"11:18080", at(s.net+"102"))
	s.until("the first address is not served any more", func() error {
		if _, err := ask("tcp", s.net+"10:18080"); err == nil {
			return errors.New("it is answered")
		}
		return nil
	})
	after := [2]int{residentMemory(t, s.cmd.Process.Pid), residentMemory(t, s.plugin())}
	for i, who := range []string{"the host", "the plugin"} {
		if grown := after[i] - before[i]; grown > 64<<10 {
			t.Errorf("%s grew by %d KiB, from %d", who, grown, before[i])
		}
	}
	if n := restarts(); n > 0 {
		t.Errorf("the plugin was started %d times more", n)
	}
}

// residentMemory returns the resident memory of a process in KiB.
func residentMemory(t testing.TB, pid int) int {
	t.Helper()
	return memory(t, pid, "VmRSS:")
}

// memory returns a field of a process's memory status in KiB.
func memory(t testing.TB, pid int, field string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == field {
			n, _ := strconv.Atoi(words[1])
			return n
		}
	}
	t.Fatalf("process %d has no %s", pid, field)
	return 0
}

// TestSourceGone removes the whole folder of manifests and restores it: its Services are served meanwhile.
func TestSourceGone(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.start()
	s.serving()
	if err := os.Rename(s.path("services"), s.path("elsewhere")); err != nil {
		t.Fatal(err)
	}
	s.until("the status warns of the missing folder", func() error { return s.warning("W007", s.path("services")) })
	s.served("tcp", s.net+"10:18080")
	if err := os.Rename(s.path("elsewhere"), s.path("services")); err != nil {
		t.Fatal(err)
	}
	s.until("status has forgotten it", func() error { return s.noWarning("W007") })
	s.served("tcp", s.net+"10:18080")
}
