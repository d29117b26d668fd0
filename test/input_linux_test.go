// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
	"fmt"
	"slices"
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
	s.served(s.net + "10:18080")
	s.served(s.net + "11:18080")

	s.manifest("web.yaml", "kind: [this is no\n\tYAML")
	s.until("the status warns of the invalid YAML", func() error { return s.warning("W007", "yaml: line 2") })
	s.served(s.net + "11:18080")

	s.manifest("web.yaml", tcpService("web", "NET.11", 18080, "NET.102"))
	s.served(s.net+"11:18080", at(s.net+"102"))
	s.until("status has forgotten it", func() error { return s.noWarning("W007") })
}
