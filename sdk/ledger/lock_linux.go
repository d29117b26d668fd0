// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// A Lock is the writer's lock of one mode in one network namespace. It ends with Unlock, or
// when the last process with its File open has ended.
type Lock struct{ file *os.File }

// TryLock takes the writer's lock of mode. If another process holds it, the error is a
// *sdk.Busy.
func (l *Ledger) TryLock(mode string) (*Lock, error) {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, fmt.Errorf("lock %s: %w", mode, err)
	}
	f, err := tryFile(l.file("-" + mode + ".lock"))
	if errors.Is(err, unix.EWOULDBLOCK) {
		defer f.Close()
		busy := &sdk.Busy{Mode: mode}
		busy.PID = holderOf(f)
		if busy.PID != 0 {
			busy.Program, busy.Host = program(busy.PID), startedBy(busy.PID)
		}
		return nil, busy
	}
	if err == nil {
		if err = note(f); err != nil {
			_ = f.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", mode, err)
	}
	return &Lock{f}, nil
}

// tryFile locks the file of that name. If it returns EWOULDBLOCK because another process holds
// the lock, the file is open nevertheless.
func tryFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		_ = f.Close()
		return nil, err
	}
	return f, err
}

// Lock waits for the writer's lock of mode until ctx ends.
func (l *Ledger) Lock(ctx context.Context, mode string) (*Lock, error) {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		lock, err := l.TryLock(mode)
		if !errors.As(err, new(*sdk.Busy)) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-poll.C:
		}
	}
}

// File returns the file to pass to a tool (in exec.Cmd's ExtraFiles), so that the lock lasts
// until the tool has ended, even if this process ends first.
func (k *Lock) File() *os.File { return k.file }

// Unlock releases the lock, effective when the tools that received File have ended.
func (k *Lock) Unlock() error { return k.file.Close() }

// note writes the holder of the lock into its file, so that others can name it.
func note(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// lockFile waits for the lock of a ledger's settings. It is held only while a few files are
// written, by code that waits for nothing else.
func lockFile(name string) (*os.File, error) {
	deadline := time.Now().Add(5 * time.Second)
	for {
		f, err := tryFile(name)
		switch {
		case err == nil:
			return f, nil
		case f != nil:
			_ = f.Close()
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return nil, fmt.Errorf("lock ledger %s: %w", name, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// mayWrite returns an error if this process cannot create files in dir.
func mayWrite(dir string) error {
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return &os.PathError{Op: "access", Path: dir, Err: err}
	}
	return nil
}

// Private gives this process and its children a private ledger in Dir that ends with them: it
// mounts a tmpfs on /run, so nothing is created on the machine's file system. It is for
// processes that end with their network namespace, such as tests. The process must have its own
// mount namespace with private propagation (syscall.SysProcAttr.Unshareflags with CLONE_NEWNS),
// and the right to mount.
func Private() error {
	run := filepath.Dir(filepath.Dir(Dir))
	if err := unix.Mount("pointsman-run", run, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("a ledger of its own: mount a tmpfs on %s: %w", run, err)
	}
	if err := os.MkdirAll(Dir, 0o700); err != nil {
		return fmt.Errorf("a ledger of its own: %w", err)
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

// holderOf returns the PID of the process that holds the lock on f, from /proc/locks; zero if
// it is not listed. It does not use the PID recorded in the file, because that of a process in
// another PID namespace would name a wrong process here. The kernel lists only processes that
// are visible from here.
func holderOf(f *os.File) int {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	return flockOn(string(locks), st.Ino, fmt.Sprintf("%02x:%02x", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev))))
}

// startedBy returns the parent of a process, which is the host that started it. It returns zero
// if that is not known, or if the process is a separate unit or container, so that its parent
// is an init process or in another PID namespace.
func startedBy(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	after := strings.LastIndexByte(string(stat), ')') // the process name may contain spaces and parentheses
	field := strings.Fields(string(stat[after+1:]))   // the state, and the parent
	if len(field) < 2 || field[1] == "1" {
		return 0
	}
	parent, _ := strconv.Atoi(field[1])
	return parent
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
