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

// A Lock is the right to write for one mode in one network namespace. It ends
// with Unlock, or when the last process that holds File is gone.
type Lock struct{ file *os.File }

// TryLock takes the right to write for mode. While another process has it, the error is a *sdk.Busy.
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

// tryFile locks the file of that name. With EWOULDBLOCK, which says that another process
// has the lock, the file is open nevertheless.
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

// Lock waits for the right to write for mode, until ctx ends.
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

// File returns what to hand to a tool (as one of exec.Cmd's ExtraFiles), so that the
// lock lasts until the tool is done, whatever becomes of this process.
func (k *Lock) File() *os.File { return k.file }

// Unlock gives the right up, once the tools that File was handed to are done.
func (k *Lock) Unlock() error { return k.file.Close() }

// note writes the holder of the lock into its file, for others to name.
func note(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// lockFile waits for the lock of a ledger's settings. It is held for as long as a
// few files take to be written, by code that never waits for anything else.
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

// mayWrite reports, by an error, that this process can make nothing in dir.
func mayWrite(dir string) error {
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return &os.PathError{Op: "access", Path: dir, Err: err}
	}
	return nil
}

// Private gives this process, and those that it starts, a ledger in Dir that no other process
// sees and that ends with them: it mounts a tmpfs on /run, so that no folder is made on the machine.
// It is for a process that will end with its network namespace, such as a test. The process must have
// a mount namespace of its own, in which what it mounts stays (syscall.SysProcAttr.Unshareflags with
// CLONE_NEWNS), and the right to mount.
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

// namespace names the calling thread's network namespace. The kernel never gives
// the same cookie twice until it boots again; a kernel before 5.14 has only the
// inode, which a later namespace may get.
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

// holderOf returns the PID of the process that holds the lock on f, by the kernel's own list of locks; zero: it is not listed.
// The pid that is noted in the file is not asked: of a process in another PID namespace
// it would name another one here. The kernel lists only those that can be seen from here.
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

// startedBy returns the parent of a process, which is the host that started it; zero: it is a unit or a container of
// its own, so that its parent is an init process or in another PID namespace, or unknown.
func startedBy(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	after := strings.LastIndexByte(string(stat), ')') // the name before it may have spaces and parentheses
	field := strings.Fields(string(stat[after+1:]))   // the state, and the parent
	if len(field) < 2 || field[1] == "1" {
		return 0
	}
	parent, _ := strconv.Atoi(field[1])
	return parent
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
