// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

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
