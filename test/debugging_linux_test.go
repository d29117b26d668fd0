// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestStoppedAndSpared stops a plugin as a breakpoint does. The host does not restart a plugin at an address, nor a
// plugin that is debugged: it reports the plugin, the node is not ready, and the plugin serves again when it continues.
func TestStoppedAndSpared(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"at an address", "debugged"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			with := "debug: true"
			if form == "at an address" {
				socket := s.path("own/userspace.sock")
				listening(t, socket)
				with = "address: 'unix://" + socket + "'"
			}
			s.write("host.yaml", strings.Replace(s.text(""), "{userspace: {", "{userspace: {"+with+", ", 1))
			backend(t, at(s.net+"101"))
			s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
			s.start()
			s.served("tcp", s.net+"10:18080")
			if form == "debugged" {
				s.until("status warns of it", func() error { return s.warning("W021", "is debugged") })
			}
			pid := s.plugin()
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
			s.until("the status warns that the plugin is suspect", func() error { return s.warning("W001", "is suspect") })
			s.until("there is an event", func() error { return s.event("PluginDown", "") })
			ordinary := servingSystem(t)
			ordinary.replacesStopped() // stopped later, and already replaced
			if st, err := s.Status(t.Context()); err != nil || st.Dataplane.State != "suspect" || st.Dataplane.PID != pid || !alive(pid) {
				t.Errorf("after it was stopped for long: %s, process %d, %v", st.Dataplane.State, st.Dataplane.PID, err)
			}
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			s.until("the plugin serves again", func() error {
				st, err := s.Status(t.Context())
				if err == nil && (st.Dataplane.State != "serving" || st.Dataplane.PID != pid || st.Dataplane.Restarts != 0) {
					err = fmt.Errorf("%s, process %d, %d restarts", st.Dataplane.State, st.Dataplane.PID, st.Dataplane.Restarts)
				}
				return err
			})
			s.served("tcp", s.net+"10:18080")
		})
	}
}

// TestDocOfDebugging validates the configurations that docs/debugging.md shows.
func TestDocOfDebugging(t *testing.T) {
	t.Parallel()
	doc := read(t, "../docs/debugging.md")
	s := newSystem(t)
	configs := 0
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(doc, -1) {
		text := block[1]
		switch {
		case strings.Contains(text, "kind: HostConfig"):
			s.write("shown.yaml", text)
			if got := s.verb("config", "validate", "--file-only", s.path("shown.yaml")); got.code != 0 {
				t.Errorf("the page shows a config that is wrong: %+v", got)
			}
			configs++
		case strings.Contains(text, "debug: true"):
			s.write("debug.yaml", "apiVersion: pointsman.dev/v1alpha1\nkind: HostConfig\nmode: acme\nsource: {files: {path: services}}\n"+text)
			if got := s.verb("config", "validate", "--file-only", s.path("debug.yaml")); got.code != 0 {
				t.Errorf("the page shows a config that is wrong: %+v", got)
			}
			configs++
		}
	}
	if configs != 2 {
		t.Errorf("the page shows %d configs", configs)
	}
}
