// SPDX-License-Identifier: Apache-2.0

package bounded

import (
	"os"

	"golang.org/x/sys/unix"
)

// nonBlocking has the opening of a pipe, or of a file under another's lease, return at
// once.
const nonBlocking = unix.O_NONBLOCK | unix.O_NOCTTY

// pseudo names the file system of file if that has no files of its own: a read there
// may wait for ever (/proc/kmsg, trace_pipe), and take something away from others.
func pseudo(file *os.File) string {
	var fs unix.Statfs_t
	conn, err := file.SyscallConn()
	if err != nil {
		return ""
	}
	if conn.Control(func(fd uintptr) { err = unix.Fstatfs(int(fd), &fs) }) != nil || err != nil {
		return ""
	}
	switch int64(fs.Type) {
	case unix.PROC_SUPER_MAGIC:
		return "procfs"
	case unix.SYSFS_MAGIC:
		return "sysfs"
	case unix.TRACEFS_MAGIC:
		return "tracefs"
	case unix.DEBUGFS_MAGIC:
		return "debugfs"
	}
	return ""
}
