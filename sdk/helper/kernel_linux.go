// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

const supported = true

var errUnsupported error

const noFollow = syscall.O_NOFOLLOW

// separate gives a helper a session of its own: no signal of a terminal reaches it, and
// what it starts is known by it.
func separate() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// bootID tells one boot of the machine from another.
var bootID = sync.OnceValue(func() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // it is there wherever /proc is
	return strings.TrimSpace(string(text))
})

// stat is what /proc tells of a process in one line.
type stat struct {
	start   uint64 // in ticks since boot
	session int
}

// readStat returns os.ErrProcessDone when there is no such process, or only a zombie.
func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return stat{}, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	if err != nil {
		return stat{}, err
	}
	// The name, in parentheses, may hold anything; the state is the first field after it, the
	// session the fourth, and the start time the twentieth.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	if state := fields[0][0]; state == 'Z' || state == 'X' {
		return stat{}, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	session, err := strconv.Atoi(string(fields[3]))
	if err != nil {
		return stat{}, err
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	return stat{start, session}, err
}

// resident returns how many bytes of a process are in memory; zero: not known.
func resident(pid int) uint64 {
	statm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	var size, pages uint64
	_, _ = fmt.Sscan(string(statm), &size, &pages)
	return pages * uint64(os.Getpagesize())
}

// A member is a process that a helper has started.
type member struct {
	pid   int
	start uint64
}

// family returns the processes of a helper without its first: those in its session while that
// one runs, and afterwards those with its token alone, since a number of a session is used again.
func family(r Record, tokens bool) []member {
	var all []member
	for _, pid := range pids() {
		now, err := readStat(pid)
		if err != nil || pid == r.PID || now.start < r.Start {
			continue
		}
		if now.session == r.PID && r.Runs() || tokens && tokenOf(pid, r.Token) {
			all = append(all, member{pid, now.start})
		}
	}
	return all
}

// kill ends the process by SIGKILL, unless another one has its pid.
func (m member) kill() {
	proc, err := os.FindProcess(m.pid)
	if err != nil {
		return
	}
	defer func() { _ = proc.Release() }()
	if now, err := readStat(m.pid); err == nil && now.start == m.start {
		_ = proc.Kill() // it has ended, or may not be ended by this user
	}
}

// pids returns every process but the first.
func pids() []int {
	entries, _ := os.ReadDir("/proc") // without it there are none to be seen
	var all []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid > 1 {
			all = append(all, pid)
		}
	}
	return all
}

// maxEnviron is how much of an environment is looked at.
const maxEnviron = 1 << 20

// tokenOf reports whether a process has the token in its environment.
func tokenOf(pid int, token string) bool {
	if token == "" {
		return false
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	defer f.Close()
	environ, _ := io.ReadAll(io.LimitReader(f, maxEnviron))
	return slices.Contains(strings.Split(string(environ), "\x00"), tokenKey+"="+token)
}

// withToken returns the process that was started with a token, which leads a session and is
// older than what it started itself; zeros: there is none.
func withToken(token string) (pid int, start uint64) {
	for _, p := range pids() {
		now, err := readStat(p)
		if err != nil || now.session != p || pid != 0 && now.start >= start || !tokenOf(p, token) {
			continue
		}
		pid, start = p, now.start
	}
	return pid, start
}

// An exitWait waits for the end of a process that is no child.
type exitWait struct{ pidfd *os.File }

// awaitExit fails where the kernel has no pidfd.
func awaitExit(proc *os.Process) (*exitWait, error) {
	var fd int
	var dupErr error
	if err := proc.WithHandle(func(handle uintptr) {
		r, _, errno := syscall.Syscall(syscall.SYS_FCNTL, handle, syscall.F_DUPFD_CLOEXEC, 3)
		if fd = int(r); errno != 0 {
			dupErr = errno
		}
	}); err != nil || dupErr != nil {
		return nil, errors.Join(err, dupErr)
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // so that Go waits for it without a thread
		return nil, errors.Join(err, syscall.Close(fd))
	}
	return &exitWait{os.NewFile(uintptr(fd), "pidfd")}, nil
}

// Wait returns true when the process has ended, and false when that is not known: after Close,
// or where a pidfd cannot be waited for.
func (e *exitWait) Wait() bool {
	conn, err := e.pidfd.SyscallConn()
	if err != nil {
		return false
	}
	asked := false
	return conn.Read(func(uintptr) bool { // called once before it waits, and once it is readable
		again := asked
		asked = true
		return again
	}) == nil
}

func (e *exitWait) Close() { _ = e.pidfd.Close() }
