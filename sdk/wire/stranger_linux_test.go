// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
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
func TestAListenerRefusesStrangers(t *testing.T) {
	path := filepath.Join(shortDir(t), "own", "s")
	listening(t, "unix://"+path)
	var err error
	asNobody(t, func() { _, err = net.Dial("unix", path) })
	if err == nil {
		t.Error("a stranger came through the directory")
	}
	openUp(t, path)
	asNobody(t, func() {
		if spokenTo(path) {
			t.Error("a stranger was spoken to")
		}
	})
	r, err := Attach(soon(t), Target{Network: "unix", Address: path})
	if err != nil {
		t.Fatalf("Attach by the plugin's own user: %v", err)
	}
	r.Close()
}

// A host does not speak to a listener of another user.
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
		t.Errorf("Attach: %v; want that it is another user's", err)
	}
}

// A plugin lets in the users that it was told of, and no other, and its folder
// their group.
func TestAListenerAcceptsNamedUsers(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "own", "s")
	for _, test := range []struct {
		allowed string
		in      bool
	}{{"65534", true}, {"65533", false}} {
		cmd := started(t, "serve", "unix://"+path, "--listen", "unix://"+path, "--allow-uid", test.allowed)
		if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o750 {
			t.Errorf("the folder: %v, %v; want it closed to others", info.Mode(), err)
		}
		openUp(t, path)
		in := false
		asNobody(t, func() { in = spokenTo(path) })
		if in != test.in {
			t.Errorf("with user %s allowed, user %d is spoken to: %t", test.allowed, nobody, in)
		}
		_ = cmd.Process.Kill()
		_ = os.RemoveAll(filepath.Dir(path))
	}
}

// spokenTo reports whether the plugin that listens at path says anything to this user.
func spokenTo(path string) bool {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return false
	}
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1)) // a gRPC server speaks first
	return err == nil
}

// A folder that another user could change is none to listen in.
func TestAListenerChoosesItsFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: to give a folder away")
	}
	theirs := filepath.Join(shortDir(t), "theirs")
	if err := errors.Join(os.Mkdir(theirs, 0o700), os.Chown(theirs, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(shortDir(t), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		dir   string
		users []uint32
		want  string
	}{
		{theirs, nil, "belongs to user 65534"},
		{closed, []uint32{nobody}, "try: chmod 0750"},
	} {
		l, err := socket{address: "unix://" + test.dir + "/s", users: test.users}.listen()
		if err == nil {
			l.Close()
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("listen in %s: %v; want %q in it", test.dir, err, test.want)
		}
	}
}

// The folder that a listener makes, and its socket, are closed to all but whom it was
// told of.
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
