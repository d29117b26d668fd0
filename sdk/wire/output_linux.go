// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// redirect puts the two pipes in the place of file descriptors 1 and 2, for those
// who keep an older os.Stderr (package log does) or write past Go. What the
// runtime says when the process crashes still goes to the old stderr, where the
// host reads it: the pipe's reader would die with the process.
func redirect(stdout, stderr *os.File) error {
	old, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return fmt.Errorf("keep stderr for a crash: %w", err)
	}
	crash := os.NewFile(uintptr(old), "stderr")
	defer crash.Close() // SetCrashOutput keeps a copy
	if err := debug.SetCrashOutput(crash, debug.CrashOptions{}); err != nil {
		return fmt.Errorf("keep stderr for a crash: %w", err)
	}
	return errors.Join(replace(1, stdout), replace(2, stderr))
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
