// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A winConn is a connection that was accepted without package net: net.FileConn cannot take it
// over under wine 8.0, where no handle leaves a completion port. Reads and writes are overlapped,
// by a handle of their own, since a handle that winsock made may be closed by winsock alone.
type winConn struct {
	*os.File // reads and writes
	from     netip.Addr

	mu     sync.Mutex // guards socket from being used when it is closed
	socket windows.Handle
	ended  bool
}

// newWinConn takes the socket over, unless it fails.
func newWinConn(socket windows.Handle, from *windows.RawSockaddrAny) (*winConn, error) {
	c := &winConn{socket: socket}
	name, err := from.Sockaddr()
	if err != nil {
		return nil, fmt.Errorf("where a client is: %w", err)
	}
	switch name := name.(type) {
	case *windows.SockaddrInet4:
		c.from = netip.AddrFrom4(name.Addr)
	case *windows.SockaddrInet6:
		c.from = netip.AddrFrom16(name.Addr)
	}
	if err := errors.Join(
		windows.SetHandleInformation(socket, windows.HANDLE_FLAG_INHERIT, 0),
		setBlocking(socket, true), // it has that of the listener, and overlapped calls wait for nothing
		windows.SetsockoptInt(socket, windows.IPPROTO_TCP, windows.TCP_NODELAY, 1),
		setKeepAlive(socket),
	); err != nil {
		return nil, fmt.Errorf("set the options of a connection: %w", err)
	}
	var file windows.Handle
	self := windows.CurrentProcess()
	if err := windows.DuplicateHandle(self, socket, self, &file, 0, false, windows.DUPLICATE_SAME_ACCESS); err != nil {
		return nil, fmt.Errorf("a handle to read and write by: %w", err)
	}
	c.File = os.NewFile(uintptr(file), "connection")
	return c, nil
}

// setKeepAlive is keepAlive. Windows probes ten times before it gives up.
func setKeepAlive(socket windows.Handle) error {
	set := windows.TCPKeepalive{OnOff: 1, Time: uint32(keepAlive.Idle / time.Millisecond), Interval: uint32(keepAlive.Interval / time.Millisecond)}
	var got uint32
	err := windows.WSAIoctl(socket, windows.SIO_KEEPALIVE_VALS, (*byte)(unsafe.Pointer(&set)), uint32(unsafe.Sizeof(set)), nil, 0, &got, nil, 0)
	return os.NewSyscallError("WSAIoctl", err)
}

func (c *winConn) remote() netip.Addr { return c.from }

func (c *winConn) original() (netip.AddrPort, error) { return netip.AddrPort{}, errors.ErrUnsupported }

// on calls f with the socket, unless that is closed.
func (c *winConn) on(f func(windows.Handle) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return net.ErrClosed
	}
	return f(c.socket)
}

func (c *winConn) CloseRead() error {
	return c.on(func(s windows.Handle) error { return windows.Shutdown(s, windows.SHUT_RD) })
}

func (c *winConn) CloseWrite() error {
	return c.on(func(s windows.Handle) error { return windows.Shutdown(s, windows.SHUT_WR) })
}

// SetLinger has Close wait so many seconds for what is to be sent. Zero: the connection is reset.
func (c *winConn) SetLinger(sec int) error {
	return c.on(func(s windows.Handle) error {
		return windows.SetsockoptLinger(s, windows.SOL_SOCKET, windows.SO_LINGER, &windows.Linger{Onoff: 1, Linger: int32(sec)})
	})
}

// Close ends reads and writes, and closes the connection.
func (c *winConn) Close() error {
	return c.on(func(s windows.Handle) error {
		c.ended = true
		return errors.Join(c.File.Close(), windows.Closesocket(s))
	})
}
