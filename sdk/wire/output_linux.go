// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

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
