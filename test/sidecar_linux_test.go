// SPDX-License-Identifier: Apache-2.0

package test

import (
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/test/eventually"
)

// TestPluginAtAnAddress has another program run the plugin, as in a container of its own: the host connects to it,
// reports when it is gone, connects to the next one, and does not stop it.
func TestPluginAtAnAddress(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	socket := s.path("own/userspace.sock")
	s.write("host.yaml", strings.Replace(s.text(""), "{userspace: {", "{userspace: {address: 'unix://"+socket+"', ", 1))
	backend(t, at(s.net+"101"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.start()
	s.until("the status warns that nothing listens at the socket", func() error { return s.warning("W001", socket) })

	first := listening(t, socket)
	s.served(s.net + "10:18080")
	if pid := s.plugin(); pid != first.Process.Pid {
		t.Errorf("the host serves by process %d, not by %d", pid, first.Process.Pid)
	}
	_ = first.Process.Kill()
	_ = first.Wait()
	s.until("the status warns that the plugin has ended", func() error { return s.warning("W001", "") })

	second := listening(t, socket)
	s.served(s.net + "10:18080")
	s.signal(syscall.SIGINT)
	if !alive(second.Process.Pid) {
		t.Error("the plugin ended with the host")
	}
	s.start()
	s.served(s.net + "10:18080")
}

// listening starts the userspace plugin as another supervisor would, and waits until it listens.
func listening(t *testing.T, socket string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(plugin(t), "--listen", "unix://"+socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually.SucceedsWithin(t, long, "the plugin listens", func() error {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	return cmd
}
