// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// separate gives a plugin a session of its own, so that what is typed at the
// host's terminal does not reach it.
func separate() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// StartTime is when process pid started, in the kernel's ticks since boot. With
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
			p.exit = Exit{Code: -1}
			close(p.exited)
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

// A peer is who is at the other end of a unix socket, by the kernel's word. A pid
// of zero is one that this pid namespace does not have.
type peer struct {
	pid int
	uid uint32
}

func peerOf(conn net.Conn) (peer, error) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return peer{}, fmt.Errorf("no credentials on a %s connection", conn.LocalAddr().Network())
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, credErr); err != nil {
		return peer{}, fmt.Errorf("credentials of the other end: %w", err)
	}
	return peer{pid: int(cred.Pid), uid: cred.Uid}, nil
}

// trusted reports why the other end may not be spoken to, if so: it must be a
// process of this user, of root, or of one of these users.
func trusted(conn net.Conn, users ...uint32) error {
	p, err := peerOf(conn)
	own := uint32(os.Geteuid())
	if err == nil && p.uid != 0 && p.uid != own && !slices.Contains(users, p.uid) {
		err = fmt.Errorf("the other end runs as user %d: only user %d or root may", p.uid, own)
	}
	return err
}

// isProcess reports why the other end is not process pid, if so.
func isProcess(conn net.Conn, pid int) error {
	p, err := peerOf(conn)
	if err == nil && p.pid != pid {
		err = fmt.Errorf("the socket belongs to process %d, not to %d", p.pid, pid)
	}
	return err
}
