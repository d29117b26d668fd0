// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk/sdktest/internal/echo"
)

// Package net knows no SCTP. But a socket of SCTP that is made like one of TCP behaves
// like one, so it is made here, and handed to package net then.

// hasSCTP reports whether this kernel has SCTP, or can load it.
func hasSCTP() bool {
	fd, err := socketSCTP(netip.IPv4Unspecified())
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

func socketSCTP(at netip.Addr) (int, error) {
	domain := unix.AF_INET
	if at.Is6() {
		domain = unix.AF_INET6
	}
	return unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
}

// boundSCTP returns a socket at an address of the namespace of the calling thread.
func boundSCTP(at netip.AddrPort) (int, error) {
	fd, err := socketSCTP(at.Addr())
	if err != nil {
		return -1, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // else the address may be said to be in use
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is6() {
		return &unix.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())}
	}
	return &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
}

// dialSCTP opens an association from one of h's addresses, as long as ctx allows.
func dialSCTP(ctx context.Context, h *Host, from netip.Addr, to netip.AddrPort) (conn net.Conn, err error) {
	end, ok := ctx.Deadline()
	if !ok {
		end = time.Now().Add(timeout)
	}
	err = h.Do(func() error {
		fd, err := boundSCTP(netip.AddrPortFrom(from, 0))
		if err != nil {
			return err
		}
		if err := connectSCTP(fd, to, end); err != nil {
			unix.Close(fd)
			return err
		}
		file := os.NewFile(uintptr(fd), "sctp")
		defer file.Close()
		conn, err = net.FileConn(file)
		return err
	})
	return conn, err
}

// connectSCTP opens an association until end. Who waits for it in connect itself would be
// woken by any signal, and the runtime sends itself some.
func connectSCTP(fd int, to netip.AddrPort, end time.Time) error {
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	if err := unix.Connect(fd, sockaddr(to)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	for {
		wait := max(0, time.Until(end))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(wait.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return os.ErrDeadlineExceeded
		}
		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		return err
	}
}

// answerSCTP starts an endpoint, as Answer does.
func answerSCTP(h *Host, at netip.AddrPort) (end io.Closer, err error) {
	var l net.Listener
	err = h.Do(func() error {
		fd, err := boundSCTP(at)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(fd), "sctp")
		defer file.Close()
		if err := unix.Listen(fd, 16); err != nil {
			return err
		}
		l, err = net.FileListener(file)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen as endpoint %s: %w", at, err)
	}
	go echo.AnswerStreams(l, at) // ends when l is closed
	return l, nil
}
