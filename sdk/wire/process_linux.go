// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

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
