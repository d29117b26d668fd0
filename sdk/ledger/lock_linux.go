// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// mayMake returns an error if dir does not exist and this process could not create it.
func mayMake(dir string) error {
	_, err := os.Stat(dir)
	for at := dir; errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at); {
		at = filepath.Dir(at)
		if err = unix.Faccessat(unix.AT_FDCWD, at, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
			err = &fs.PathError{Op: "create files in", Path: at, Err: err}
		}
	}
	return err
}

// Private gives this process and its children a private ledger in Dir that ends with them: it
// mounts a tmpfs on /run, so nothing is created on the machine's file system. It is for
// processes that end with their network namespace, such as tests. The process must have its own
// mount namespace with private propagation (syscall.SysProcAttr.Unshareflags with CLONE_NEWNS),
// and the right to mount.
func Private() error {
	run := filepath.Dir(filepath.Dir(Dir))
	if err := unix.Mount("pointsman-run", run, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("create a private ledger: mount a tmpfs on %s: %w", run, err)
	}
	if err := os.MkdirAll(Dir, 0o700); err != nil {
		return fmt.Errorf("create a private ledger: %w", err)
	}
	return nil
}

// namespace returns a name for the calling thread's network namespace. The kernel does not
// reuse its cookie before the next boot. Kernels before 5.14 have only the inode, which a later
// namespace may reuse.
func namespace() (string, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		if cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err == nil {
			return "net-" + strconv.FormatUint(cookie, 10), nil
		}
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return "", err
	}
	return "net-inode-" + strconv.FormatUint(st.Ino, 10), nil
}

// busy returns the error that names the process which holds the lock on the file, from
// /proc/locks. Its PID is zero if it is not listed: the kernel lists only processes that are
// visible from here. A PID in the file could be that of another PID namespace.
func busy(mode, name string) *sdk.Busy {
	b := &sdk.Busy{Mode: mode}
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return b
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return b
	}
	device := fmt.Sprintf("%02x:%02x", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)))
	if b.PID = flockOn(string(locks), st.Ino, device); b.PID != 0 {
		b.Program, b.Host = program(b.PID), startedBy(b.PID)
	}
	return b
}

// startedBy returns the parent of a process, which is the host that started it. It returns zero
// if that is not known, or if the process is a separate unit or container, so that its parent
// is an init process or in another PID namespace.
func startedBy(pid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // empty if the process has ended
	for line := range strings.Lines(string(status)) {
		if parent, ok := strings.CutPrefix(line, "PPid:"); ok {
			if number, _ := strconv.Atoi(strings.TrimSpace(parent)); number != 1 {
				return number
			}
		}
	}
	return 0
}

// flockOn returns the process with a flock on the file with that inode and device, from the
// text of /proc/locks; 0 if none is listed. Some file systems have a different device in
// /proc/locks than in stat: then the inode alone must do, if it is unique.
//
//	1: FLOCK  ADVISORY  WRITE 4242 00:1a:1234 0 EOF
//	1: -> FLOCK  ADVISORY  WRITE 4243 00:1a:1234 0 EOF       (a waiting process)
func flockOn(locks string, inode uint64, device string) int {
	var alike []int
	for line := range strings.Lines(locks) {
		word := strings.Fields(line)
		if len(word) < 6 || word[1] != "FLOCK" {
			continue
		}
		pid, err := strconv.Atoi(word[4])
		where := strings.Split(word[5], ":")
		if err != nil || pid <= 0 || len(where) != 3 || where[2] != strconv.FormatUint(inode, 10) {
			continue
		}
		if where[0]+":"+where[1] == device {
			return pid
		}
		alike = append(alike, pid)
	}
	if len(alike) == 1 {
		return alike[0]
	}
	return 0
}

// program returns the name of a process's executable, or "" if it is not visible. The holder
// may be a tool: a process that ended leaves its lock to the programs that it started.
func program(pid int) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
			return "gone; a program that it started is still at work"
		}
		return ""
	}
	return strings.TrimSuffix(filepath.Base(path), " (deleted)")
}
