// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/eventually"
)

// TestAliveOrNot checks both ways to detect a hung plugin: the watchdog message, and the verb alive.
func TestAliveOrNot(t *testing.T) {
	dir := shortDir(t)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(dir, "n")})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "n"))
	t.Setenv("WATCHDOG_USEC", "100000")
	address := "unix://" + filepath.Join(dir, "own", "s")
	plugin := listening(t, address)

	said := make([]byte, 20)
	for range 3 {
		if err := manager.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if n, err := manager.Read(said); err != nil || string(said[:n]) != "WATCHDOG=1" {
			t.Fatalf("systemd receives %q, %v", said[:n], err)
		}
	}
	alive := func() (string, error) {
		out, err := part("serve", "alive", address).CombinedOutput()
		return string(out), err
	}
	eventually.True(t, "alive succeeds", func() bool { // a busy machine may take long
		out, err := alive()
		return err == nil && strings.Contains(out, "answers")
	})
	if err := plugin.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if out, err := alive(); err == nil || !strings.Contains(out, "deadline") {
		t.Errorf("a stopped plugin: %s, %v", out, err)
	}
}
