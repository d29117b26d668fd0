// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// separate gives a plugin a session of its own, so that what is typed at the
// host's terminal does not reach it.
func separate() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// StartTime returns when process pid started, in the kernel's ticks since boot. With
// the pid it names a process for good. The error is os.ErrProcessDone when there
// is no such process, or only a zombie.
func StartTime(pid int) (uint64, error) {
	s, err := readStat(pid)
	return s.start, err
}

// watch watches a process that is no child, by a pidfd: it cannot be mistaken for
// another that gets the same pid.
func watch(pid int, start uint64) (*process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	now, err := StartTime(pid)
	if err == nil && start != 0 && now != start {
		err = fmt.Errorf("process %d is another one now: %w", pid, os.ErrProcessDone)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	stop, stopped, err := os.Pipe()
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	p := newProcess(pid)
	p.start = now
	pidfd := os.NewFile(uintptr(fd), "pidfd")
	p.signal = func(sig os.Signal) error { return signalByFD(pidfd, sig) }
	p.forget = func() { stopped.Close() }
	go p.follow(pidfd, stop)
	return p, nil
}

// follow ends with the process, or when forget closes the other end of stop.
func (p *process) follow(pidfd, stop *os.File) {
	defer pidfd.Close()
	defer stop.Close()
	fds := []unix.PollFd{
		{Fd: int32(pidfd.Fd()), Events: unix.POLLIN},
		{Fd: int32(stop.Fd()), Events: unix.POLLIN},
	}
	for {
		_, err := unix.Poll(fds, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if fds[0].Revents != 0 {
			p.end(Exit{Code: -1})
			return
		}
		if fds[1].Revents != 0 {
			return
		}
	}
}

func signalByFD(pidfd *os.File, sig os.Signal) error {
	number, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("signal %s has no number", sig)
	}
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = conn.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), unix.Signal(number), nil, 0) })
	return errors.Join(err, sent)
}

// oomScore asks the kernel to spare the process, or not, when memory runs out.
func oomScore(pid, score int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(score)), 0)
}

// NetNS returns the network namespace of the calling thread, as Marked.NetNS has it.
func NetNS() (string, error) { return os.Readlink("/proc/thread-self/ns/net") }

// FindMarked lists the processes that have a mark, the oldest first. What this user may
// not look into is not among them.
func FindMarked() ([]Marked, error) {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for plugins in /proc: %w", err)
	}
	var found []Marked
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		if m, err := markedProcess(pid); err == nil {
			found = append(found, m)
		}
	}
	slices.SortStableFunc(found, func(a, b Marked) int { return cmp.Compare(a.Start, b.Start) })
	return found, nil
}

// markedProcess returns the process of that pid, if it has a mark.
func markedProcess(pid int) (Marked, error) {
	environ, err := environOf(pid)
	if err != nil {
		return Marked{}, err
	}
	mark, ok := markIn(environ)
	if !ok {
		return Marked{}, ErrNotPlugin
	}
	m := Marked{PID: pid, Mark: mark}
	stat, err := readStat(pid)
	if err != nil {
		return Marked{}, err
	}
	m.Start, m.Parent = stat.start, stat.parent
	if m.NetNS, err = os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil {
		return Marked{}, err
	}
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return Marked{}, err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		m.UID = s.Uid
	}
	return m, nil
}

// maxEnviron is more than the mark's place in an environment: a host writes it first.
const maxEnviron = 1 << 20

func environOf(pid int) (string, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxEnviron))
	return string(text), err
}

// SeesDir reports whether the directory that the process's mark names is, where the
// process is, the one that dir is here. The same path is another directory in another
// container.
func (m Marked) SeesDir(dir string) bool {
	if m.Mark.StateDir == "" {
		return false
	}
	there, err := os.Stat(filepath.Join(fmt.Sprintf("/proc/%d/root", m.PID), m.Mark.StateDir))
	if err != nil {
		return false
	}
	here, err := os.Stat(dir)
	return err == nil && os.SameFile(there, here)
}

// End ends the process by SIGTERM, and a second later by SIGKILL. One that has ended is
// no error; one that has its pid by now gets no signal.
func (m Marked) End(ctx context.Context) error {
	p, err := watch(m.PID, m.Start)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.forget()
	now, err := markedProcess(m.PID)
	if !p.lives() {
		return nil
	}
	now.Parent = m.Parent // a process whose parent ends gets another one
	if err == nil && now != m {
		err = ErrNotPlugin
	}
	if err == nil {
		err = p.terminate(context.WithoutCancel(ctx))
	}
	if err != nil {
		return fmt.Errorf("end process %d: %w", m.PID, err)
	}
	return nil
}

// traits returns what tells a process from another that gets its pid: its network namespace,
// and the file that it executes, which reads "(deleted)" after an upgrade and is the same
// inode nevertheless. Empty: nothing can be said.
func traits(pid int) (netns, exe string) {
	netns, _ = os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	info, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return netns, ""
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		exe = fmt.Sprintf("%d:%d", s.Dev, s.Ino)
	}
	return netns, exe
}

// shows reports why process p is not shown to be the plugin that h names, if so. It is
// asked of /proc while p's pidfd is open, and p lives at the end of it, so every answer was
// about p.
func (h Handle) shows(p *process) error {
	environ, err := environOf(p.pid)
	if errors.Is(err, os.ErrPermission) { // a killed process has lost its memory, which only root may read then: it ends at once
		select {
		case <-p.exited:
		case <-time.After(time.Second):
		}
	}
	mark, _ := markIn(environ)
	netns, exe := traits(p.pid)
	if !p.lives() || errors.Is(err, unix.ESRCH) { // its memory, and so its environment, ends before its pid
		return os.ErrProcessDone
	}
	switch {
	case h.Launch == "":
		return fmt.Errorf("nothing was written down by which its process could be known: %w", ErrNotPlugin)
	case err != nil:
		return fmt.Errorf("%w: %w", err, ErrNotPlugin)
	case mark.Launch != h.Launch:
		return fmt.Errorf("its environment does not have the launch that was written down: %w", ErrNotPlugin)
	case h.NetNS != netns:
		return fmt.Errorf("it is in the network namespace %s, and %s was written down: %w", netns, h.NetNS, ErrNotPlugin)
	case h.Exe != exe:
		return fmt.Errorf("it executes another file than was written down: %w", ErrNotPlugin)
	}
	return nil
}

// lives reports whether the process has not ended. What /proc said of its pid before was
// about it then: the kernel gives the pid to no other one before.
func (p *process) lives() bool {
	now, err := readStat(p.pid)
	return err == nil && now.start == p.start && p.signal(syscall.Signal(0)) == nil
}

// stat is what /proc tells of a process in one line.
type stat struct {
	start  uint64 // in ticks since boot
	parent int
}

// readStat returns os.ErrProcessDone when there is no such process, or only a zombie.
func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return stat{}, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	if err != nil {
		return stat{}, err
	}
	// The name, in parentheses, may hold anything; the state is the first field
	// after it, then the parent, and the start time is the twentieth.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	if state := fields[0][0]; state == 'Z' || state == 'X' {
		return stat{}, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return stat{}, err
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	return stat{start, parent}, err
}
