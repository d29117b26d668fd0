// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const nobody = 65534

// asNobody runs f in a thread of another user; the thread ends with it.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: to be another user")
	}
	done := make(chan unix.Errno)
	go func() {
		runtime.LockOSThread() // for good: such a thread is of no more use
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody)
		if errno == 0 {
			f()
		}
		done <- errno
	}()
	if errno := <-done; errno != 0 {
		t.Fatalf("become user %d: %v", nobody, errno)
	}
}

// openUp lets everybody reach the socket, so that nothing but the check of who
// connects is left to keep them out.
func openUp(t *testing.T, socket string) {
	t.Helper()
	for path := socket; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
}

// A plugin that listens for itself turns other users away.
func TestAListenerTurnsStrangersAway(t *testing.T) {
	path := filepath.Join(shortDir(t), "own", "s")
	listening(t, "unix://"+path)
	var err error
	asNobody(t, func() { _, err = net.Dial("unix", path) })
	if err == nil {
		t.Error("a stranger came through the directory")
	}
	openUp(t, path)
	asNobody(t, func() {
		var conn net.Conn
		if conn, err = net.Dial("unix", path); err != nil {
			return
		}
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1)) // a gRPC server speaks first
	})
	if err == nil {
		t.Error("a stranger was spoken to")
	}
	r, err := Attach(soon(t), Handle{Network: "unix", Address: path})
	if err != nil {
		t.Fatalf("Attach by the plugin's own user: %v", err)
	}
	r.Close()
}

// A host does not speak to a listener of another user.
func TestAHostTurnsFromStrangers(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	openUp(t, filepath.Dir(path))
	var listener net.Listener
	var err error
	asNobody(t, func() { listener, err = net.Listen("unix", path) })
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, err = Attach(soon(t), Handle{Network: "unix", Address: path})
	if err == nil || !strings.Contains(err.Error(), "runs as user 65534") {
		t.Errorf("Attach: %v; want that it is another user's", err)
	}
}
