// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"io"
	"math"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/windows"
)

// Errors of Listen and Probe, for errors.Is.
const (
	ErrNotLocal   = windows.WSAEADDRNOTAVAIL // no interface of this machine has the address
	ErrNotAllowed = windows.WSAEACCES        // this process may not listen on the port
	ErrInUse      = windows.WSAEADDRINUSE    // another program has the port
)

const (
	errTooMany    = windows.WSAEMFILE
	errTooManyAll = windows.WSAENOBUFS
	errTooLong    = windows.WSAEMSGSIZE
)

// maxFiles returns the number of descriptors that this process may have.
func maxFiles() int { return math.MaxInt }

// A reader reads from one socket.
type reader struct {
	*buffers
	conn syscall.Conn
}

func newReader(b *buffers, conn syscall.Conn) *reader { return &reader{b, conn} }

// read waits for a datagram or for bytes of a connection, and returns n bytes in a borrowed buffer. n is 0 if the peer of a
// connection has closed its side. While it waits for a connection, it has no buffer.
func (r *reader) read() (buf *buffer, n int, from netip.AddrPort, err error) {
	if c, is := r.conn.(*net.TCPConn); is {
		if err := awaitData(c); err != nil {
			return nil, 0, from, err
		}
		buf = r.lend()
		if n, err = c.Read(buf[:]); errors.Is(err, io.EOF) {
			err = nil
		}
	} else {
		buf = r.lend()
		n, from, err = r.conn.(*net.UDPConn).ReadFromUDPAddrPort(buf[:])
	}
	if err != nil {
		r.giveBack(buf)
		return nil, 0, from, err
	}
	return buf, n, from, nil
}

// awaitData waits until there is something to read, which package net does after the first call of the function.
func awaitData(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	waited := false
	return raw.Read(func(uintptr) bool {
		defer func() { waited = true }()
		return waited
	})
}

// reusePort does nothing: a port belongs to one socket.
func reusePort(string, string, syscall.RawConn) error { return nil }
