// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
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
			s.served(s.net + "10:18080")
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
			s.served(s.net + "10:18080")
		})
	}
}
