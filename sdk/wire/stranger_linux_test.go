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

// asNobody runs f as another user, in a thread that ends with f.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: to act as another user")
	}
	done := make(chan unix.Errno)
	go func() {
		runtime.LockOSThread() // without unlocking, so that the thread ends
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody)
		if errno == 0 {
			f()
		}
		done <- errno
	}()
	if errno := <-done; errno != 0 {
		t.Fatalf("set the user of the thread to %d: %v", nobody, errno)
	}
}

// openUp gives all users access to the socket, so that only the check of the peer refuses them.
func openUp(t *testing.T, socket string) {
	t.Helper()
	for path := socket; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAListenerRefusesStrangers checks that the directory, and then the check of the peer, refuse another user.
func TestAListenerRefusesStrangers(t *testing.T) {
	path := filepath.Join(shortDir(t), "own", "s")
	listening(t, "unix://"+path)
	var err error
	asNobody(t, func() { _, err = net.Dial("unix", path) })
	if err == nil {
		t.Error("another user can connect through the directory")
	}
	openUp(t, path)
	asNobody(t, func() {
		if spokenTo(path) {
			t.Error("the plugin answers another user")
		}
	})
	r, err := Attach(soon(t), Target{Network: "unix", Address: path})
	if err != nil {
		t.Fatalf("Attach by the plugin's own user: %v", err)
	}
	r.Close()
}

// TestAHostRefusesStrangers checks that a host refuses a listener of another user.
func TestAHostRefusesStrangers(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	openUp(t, filepath.Dir(path))
	var listener net.Listener
	var err error
	asNobody(t, func() { listener, err = net.Listen("unix", path) })
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, err = Attach(soon(t), Target{Network: "unix", Address: path})
	if err == nil || !strings.Contains(err.Error(), "runs as user 65534") {
		t.Errorf("Attach: %v; want that the listener runs as another user", err)
	}
}

// TestAListenerAcceptsNamedUsers checks that --allow-uid admits this user only.
func TestAListenerAcceptsNamedUsers(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "own", "s")
	for _, test := range []struct {
		allowed string
		in      bool
	}{{"65534", true}, {"65533", false}} {
		cmd := started(t, "serve", "unix://"+path, "--listen", "unix://"+path, "--allow-uid", test.allowed)
		openUp(t, path)
		in := false
		asNobody(t, func() { in = spokenTo(path) })
		if in != test.in {
			t.Errorf("user %s is allowed, and the plugin answers user %d: %t", test.allowed, nobody, in)
		}
		_ = cmd.Process.Kill()
		_ = os.RemoveAll(filepath.Dir(path))
	}
}

// spokenTo reports whether the plugin that listens at path answers this user.
func spokenTo(path string) bool {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return false
	}
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1)) // a gRPC server speaks first
	return err == nil
}

// TestAListenerClosesItsFolder checks the modes of a new folder and of its socket.
func TestAListenerClosesItsFolder(t *testing.T) {
	for mode, users := range map[os.FileMode][]uint32{0o600: nil, 0o660: {nobody}} {
		path := filepath.Join(shortDir(t), "own", "s")
		l, err := socket{address: "unix://" + path, users: users}.listen()
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for name, want := range map[string]os.FileMode{path: mode, filepath.Dir(path): 0o700 | mode&0o040 | mode&0o040>>2} {
			if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
				t.Errorf("for users %v, %s has the mode %s, want %s: %v", users, name, info.Mode().Perm(), want, err)
			}
		}
	}
}
