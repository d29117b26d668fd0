// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

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

// isProcess reports why the other end is not process pid, if so.
func isProcess(conn net.Conn, pid int) error {
	p, err := peerOf(conn)
	if err == nil && p.pid != pid {
		err = fmt.Errorf("the socket belongs to process %d, not to %d", p.pid, pid)
	}
	return err
}
