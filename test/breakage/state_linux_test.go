// SPDX-License-Identifier: Apache-2.0

package breakage

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ofState are those of what the host writes down.
var ofState = []fault{
	{name: "state-lost", do: func(n *node) { n.stateless(lose) }},
	{name: "state-corrupt", do: func(n *node) { n.stateless(garble) }},
	{name: "state-empty", do: func(n *node) { n.stateless(empty) }},
	{name: "state-fifo", do: func(n *node) { n.stateless(fifo) }},
	{name: "state-link", do: func(n *node) { n.stateless(link) }},
	{name: "state-folder", do: stateFolder},
	{name: "state-all-lost", do: stateAllLost},
	{name: "socket-left", do: socketLeft},
	{name: "state-full", do: stateFull},
	{name: "state-read-only", can: immutable, do: stateReadOnly},
}

// What becomes of a file.
func lose(path string) error { return os.Remove(path) }
func garble(path string) error {
	return os.WriteFile(path, []byte(`{"serving": "ipvs", "PID": 1, `), 0o600)
}
func empty(path string) error  { return os.WriteFile(path, nil, 0o600) }
func fifo(path string) error   { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) }
func link(path string) error   { return errors.Join(os.Remove(path), os.Symlink("/dev/zero", path)) }
func folder(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }

// stateless has that happen to one of the files of the state, or to all, while no host
// runs.
func (n *node) stateless(what func(path string) error) {
	n.Helper()
	sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[n.IntN(2)]
	n.again(sig, func() {
		var files []string
		_ = filepath.WalkDir(n.path("state"), func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, ".json") {
				files = append(files, path)
			}
			return nil
		})
		if n.IntN(2) == 0 {
			files = files[n.IntN(len(files)):][:1]
		}
		for _, path := range files {
			n.step("  %s", strings.TrimPrefix(path, n.dir))
			if err := what(path); err != nil {
				n.Fatal(err)
			}
		}
	})
}

// stateAllLost has the whole folder gone while no host runs.
func stateAllLost(n *node) {
	n.again(syscall.SIGKILL, func() {
		n.must("find", n.path("state"), "-mindepth", "1", "-delete")
	})
}

// stateFolder has folders where files belong, which nothing can take the place of. The
// host serves, and warns if it has something to write there.
func stateFolder(n *node) {
	var there []string
	n.stateless(func(path string) error { there = append(there, path); return folder(path) })
	n.until("the host serves", long, n.served)
	for _, path := range there {
		_ = os.Remove(path)
	}
}

// socketLeft has what a kill leaves while the admin socket is being made.
func socketLeft(n *node) {
	n.again(syscall.SIGKILL, func() {
		l, err := net.Listen("unix", n.path("admin.sock.new"))
		if err != nil {
			n.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		_ = l.Close()
	})
}

// stateFull has no room for what is to be written down: a swap is not made, and status
// says what cannot be written, until there is room.
func stateFull(n *node) {
	ballast := n.path("state/ballast")
	if err := os.WriteFile(ballast, make([]byte, stateSize), 0o600); !errors.Is(err, syscall.ENOSPC) {
		n.Fatalf("there is room left: %v", err)
	}
	n.unwritten("no space left")
	if err := os.Remove(ballast); err != nil {
		n.Fatal(err)
	}
	n.written()
}

// stateReadOnly has a state in which nothing can be made, changed or removed, save for the
// sockets, without which no plugin could be reached.
func stateReadOnly(n *node) {
	protect := func(how string) {
		n.must("find", n.path("state"), "-name", "sockets", "-prune", "-o", "(", "-type", "d", "-o", "-type", "f", ")", "-exec", "chattr", how, "{}", "+")
	}
	protect("+i")
	n.unwritten("operation not permitted")
	protect("-i")
	n.written()
}

// immutable reports whether the kernel can have that.
func immutable(n *node) bool {
	n.write("state/probe", "")
	_, err := n.run("chattr", "+i", n.path("state/probe"))
	_, _ = n.run("chattr", "-i", n.path("state/probe"))
	_ = os.Remove(n.path("state/probe"))
	return err == nil
}

// stateSize is what there is room for.
const stateSize = 128 << 20

// mount has the state on a file system of its own.
func (n *node) mount() {
	n.Helper()
	if err := unix.Mount("none", n.path("state"), "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", stateSize)); err != nil {
		n.Fatalf("mount a file system for the state: %v", err)
	}
}

// written waits until the host has written down what it could not, and takes back the swap
// that was asked for.
func (n *node) written() {
	n.Helper()
	n.within(soon, "no warning W017 is left", func() error {
		l, err := n.look()
		if err == nil && warning("W017", "").wrong(l) == nil {
			err = fmt.Errorf("%q", l.status.Warnings)
		}
		return err
	})
	if out, err := n.verb("mode", "reset"); err != nil {
		n.Errorf("mode reset: %v: %s", err, out)
	}
}

// unwritten kills the plugin, the way to whose next process cannot be written down: that is
// said, and the plugin serves. A swap is refused for the same reason.
func (n *node) unwritten(why string) {
	n.Helper()
	n.kill(n.mode, syscall.SIGKILL)
	n.shows(soon, warning("W017", why))
	n.until("the next process serves all the same", long, func() error { err := n.served(); n.relayBack(); return err })
	out, err := n.verb("mode", "swap", n.other(), "--wait")
	if err == nil || !strings.Contains(out, why) {
		n.Errorf("a swap that cannot be written down: %v: %s", err, out)
	}
}
