// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// sweepAge is how long nothing must have been written for a namespace before it is
	// asked whether that is gone.
	sweepAge = time.Hour

	// sweepLimit is how long that may take. What is not done by then is left.
	sweepLimit = 500 * time.Millisecond
)

// ledgerFile is the name of each file: of the namespace, and of the mode or of
// what is shared.
var ledgerFile = regexp.MustCompile(`^(net-(?:inode-)?[0-9]+)(?:-[A-Za-z0-9-]+)?\.(?:lock|json|json\.new)$`)

// sweep removes what is left of network namespaces that are gone. A file that was there
// before belongs to a namespace that was there before: if a look at all processes finds
// that nowhere, twice, and nothing holds its locks, and nothing was written for a while,
// it is gone. Where not everything can be looked at, nothing is removed.
func (l *Ledger) sweep(age, limit time.Duration) {
	old := l.old(time.Now().Add(-age))
	if len(old) == 0 {
		return
	}
	deadline := time.Now().Add(limit)
	for range 2 {
		alive, err := namespaces(deadline)
		if err != nil {
			return // it is not known that they are gone
		}
		for namespace := range old {
			if alive[namespace] {
				delete(old, namespace)
			}
		}
	}
	for _, files := range old {
		l.remove(files)
	}
}

// seesAll reports whether this process is in the machine's first PID namespace. From any
// other one not every process can be seen, and so not every network namespace.
func seesAll() bool {
	first, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && first == "pid:[4026531836]" // PROC_PID_INIT_INO, which the kernel promises
}

// old returns the files of each other namespace for which nothing was written since.
func (l *Ledger) old(since time.Time) map[string][]string {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil
	}
	files, young := make(map[string][]string), make(map[string]bool)
	for _, e := range entries {
		name := ledgerFile.FindStringSubmatch(e.Name())
		if name == nil || name[1] == l.namespace {
			continue
		}
		files[name[1]] = append(files[name[1]], filepath.Join(l.dir, e.Name()))
		if info, err := e.Info(); err != nil || info.ModTime().After(since) {
			young[name[1]] = true
		}
	}
	for namespace := range young {
		delete(files, namespace)
	}
	return files
}

// remove removes the files of one namespace, if none of its locks is held.
func (l *Ledger) remove(files []string) {
	for _, name := range files {
		if !strings.HasSuffix(name, ".lock") {
			continue
		}
		f, err := os.OpenFile(name, os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return
		}
		defer f.Close() // when all are removed
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return
		}
	}
	for _, name := range files {
		_ = os.Remove(name) // it is tried again by the next one
	}
}

// namespaces returns those that a process, an open file or a mount keeps, by the names that
// ledgers have. The error says that some could not be looked at.
func namespaces(deadline time.Time) (map[string]bool, error) {
	found, err := look(deadline)
	if err != nil {
		return nil, err
	}
	alive := make(map[string]bool)
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			runtime.UnlockOSThread()
			failed <- err
			return
		}
		err = found.name(alive)
		// The thread goes back. To end it is not enough: the first thread of a process stays
		// when its goroutine has ended, and would keep alive the namespace that it is in.
		if back := unix.Setns(own, unix.CLONE_NEWNET); back == nil {
			runtime.UnlockOSThread()
		}
		_ = unix.Close(own) // only read
		failed <- err
	}()
	return alive, <-failed
}

// links are for the inode of each network namespace the paths that lead to it.
type links map[string][]string

// name enters each namespace, and asks for its name there.
func (l links) name(alive map[string]bool) error {
	for inode, paths := range l {
		alive["net-inode-"+inode] = true
		var err error
		for _, path := range paths { // what it is of may have ended since
			if err = enter(path); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
		own, err := namespace()
		if err != nil {
			return err
		}
		alive[own] = true
	}
	return nil
}

func enter(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Setns(fd, unix.CLONE_NEWNET)
}

// look finds the network namespaces of all processes.
func look(deadline time.Time) (links, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	found, mounts := make(links), make(map[string]bool)
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if time.Now().After(deadline) {
			return nil, os.ErrDeadlineExceeded
		}
		dir := filepath.Join("/proc", e.Name())
		err := errors.Join(found.threads(dir), found.files(dir), found.mounts(dir, mounts))
		if _, gone := os.Stat(dir); err != nil && gone == nil {
			return nil, err
		}
	}
	return found, nil
}

func (l links) note(name, path string) {
	if inode, ok := strings.CutPrefix(name, "net:["); ok {
		inode = strings.TrimSuffix(inode, "]")
		l[inode] = append(l[inode], path)
	}
}

func (l links) threads(dir string) error {
	tasks, err := os.ReadDir(dir + "/task")
	for _, t := range tasks {
		path := filepath.Join(dir, "task", t.Name(), "ns/net")
		name, failed := os.Readlink(path)
		if errors.Is(failed, os.ErrPermission) {
			return failed
		}
		l.note(name, path) // or the thread has ended
	}
	return err
}

func (l links) files(dir string) error {
	fds, err := os.ReadDir(dir + "/fd")
	for _, fd := range fds {
		path := filepath.Join(dir, "fd", fd.Name())
		name, failed := os.Readlink(path)
		if errors.Is(failed, os.ErrPermission) {
			return failed
		}
		l.note(name, path) // or it was closed
	}
	return err
}

// mounts are looked at once for each mount namespace.
func (l links) mounts(dir string, seen map[string]bool) error {
	namespace, err := os.Readlink(dir + "/ns/mnt")
	if err != nil || seen[namespace] {
		if errors.Is(err, os.ErrNotExist) {
			return nil // a thread of the kernel's, or it has ended
		}
		return err
	}
	text, err := os.ReadFile(dir + "/mountinfo")
	if err != nil {
		return err
	}
	seen[namespace] = true
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 {
			l.note(f[3], filepath.Join(dir, "root", f[4]))
		}
	}
	return nil
}
