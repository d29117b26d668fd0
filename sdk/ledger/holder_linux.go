// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// holderOf returns the process that holds the lock on f, by the kernel's own list of locks.
// The pid that is noted in the file is not asked: of a process in another PID namespace
// it would name another one here. The kernel lists only those that can be seen from here.
func holderOf(f *os.File) sdk.Holder {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return sdk.Holder{}
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return sdk.Holder{}
	}
	pid := flockOn(string(locks), st.Ino, fmt.Sprintf("%02x:%02x", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev))))
	if pid == 0 {
		return sdk.Holder{}
	}
	return sdk.Holder{PID: pid, Program: program(pid)}
}

// flockOn returns the process that took a flock on the file of that inode and device, by
// what /proc/locks says; 0: none is listed. Some file systems have another device there
// than in stat: then the inode has to do, if it is the only one.
//
//	1: FLOCK  ADVISORY  WRITE 4242 00:1a:1234 0 EOF
//	1: -> FLOCK  ADVISORY  WRITE 4243 00:1a:1234 0 EOF       (this one waits)
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

// program returns the name of a process's executable; empty: it cannot be seen. A process
// that is gone leaves its lock to the programs that it started.
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
