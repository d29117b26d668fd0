// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// redirect puts the two pipes in the place of file descriptors 1 and 2, for code
// that keeps an older os.Stderr or writes past Go. What the runtime says when the
// process crashes still goes to the old stderr, where the host reads it: the
// pipe's reader would die with the process. The old stderr is returned; a write to
// it fails rather than wait.
func redirect(stdout, stderr *os.File) (last *os.File, err error) {
	fd, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("keep stderr for a crash: %w", err)
	}
	last = os.NewFile(uintptr(fd), "stderr")
	return last, errors.Join(
		debug.SetCrashOutput(last, debug.CrashOptions{}),
		unix.SetNonblock(fd, true), // after NewFile, which would wait for what does not block
		replace(1, stdout),
		replace(2, stderr),
	)
}

// replace makes fd another name of f, which stays as it is: without blocking.
func replace(fd int, f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var dupErr error
	err = conn.Control(func(from uintptr) { dupErr = unix.Dup3(int(from), fd, 0) })
	if err = errors.Join(err, dupErr); err != nil {
		return fmt.Errorf("redirect file descriptor %d: %w", fd, err)
	}
	return nil
}

// memory returns how many bytes of this process are resident; zero: not known.
func memory() uint64 {
	statm, _ := os.ReadFile("/proc/self/statm")
	var size, resident uint64 // in pages
	_, _ = fmt.Sscan(string(statm), &size, &resident)
	return resident * uint64(os.Getpagesize())
}

// takeName gives this process the name that ps shows. A host executes a plugin by an open
// file's descriptor, and the process was called by that number.
func takeName() {
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0) // nothing depends on it
}

// A peer is the process at the other end of a unix socket, by the kernel's word. A pid
// of zero is one that this pid namespace does not have.
type peer struct {
	pid int
	uid uint32
}

func peerOf(conn net.Conn) (peer, error) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return peer{}, fmt.Errorf("no credentials on a %s connection", conn.LocalAddr().Network())
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, credErr); err != nil {
		return peer{}, fmt.Errorf("credentials of the other end: %w", err)
	}
	return peer{pid: int(cred.Pid), uid: cred.Uid}, nil
}

// trusted reports why the other end may not be spoken to, if so: it must be a
// process of this user, of root, or of one of these users.
func trusted(conn net.Conn, users ...uint32) error {
	p, err := peerOf(conn)
	own := uint32(os.Geteuid())
	if err == nil && p.uid != 0 && p.uid != own && !slices.Contains(users, p.uid) {
		err = fmt.Errorf("the other end runs as user %d: only user %d or root may", p.uid, own)
	}
	return err
}

// expected reports why the other end is not process pid, if so; with a pid of zero, why it
// may not be spoken to.
func expected(conn net.Conn, pid int) error {
	if pid == 0 {
		return trusted(conn)
	}
	p, err := peerOf(conn)
	if err == nil && p.pid != pid {
		err = fmt.Errorf("the socket belongs to process %d, not to %d", p.pid, pid)
	}
	return err
}
