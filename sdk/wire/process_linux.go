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

// memory returns the resident memory of this process in bytes; zero if not known.
func memory() uint64 {
	statm, _ := os.ReadFile("/proc/self/statm")
	var size, resident uint64 // in pages
	_, _ = fmt.Sscan(string(statm), &size, &resident)
	return resident * uint64(os.Getpagesize())
}

// setName sets the name that ps shows. The host executes the plugin by an open file descriptor,
// so the process would be named after its number.
func setName() {
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0) // nothing depends on the name
}

// peerOf returns the process at the other end of a unix socket, and its user, as the kernel
// reports them. The PID is zero if the process is not in this PID namespace.
func peerOf(conn net.Conn) (pid int, uid uint32, err error) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return 0, 0, fmt.Errorf("no credentials on a %s connection", conn.LocalAddr().Network())
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, credErr); err != nil {
		return 0, 0, fmt.Errorf("credentials of the other end: %w", err)
	}
	return int(cred.Pid), cred.Uid, nil
}

// checkTrusted returns an error unless the process at the other end runs as this user, root, or
// one of users.
func checkTrusted(conn net.Conn, users ...uint32) error {
	_, uid, err := peerOf(conn)
	own := uint32(os.Geteuid())
	if err == nil && uid != 0 && uid != own && !slices.Contains(users, uid) {
		err = fmt.Errorf("the other end runs as user %d: only user %d or root may", uid, own)
	}
	return err
}
