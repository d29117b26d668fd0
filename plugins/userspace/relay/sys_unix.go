// SPDX-License-Identifier: Apache-2.0

//go:build unix

package relay

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A reader reads from one socket. It borrows a buffer only when there is something to read, so idle sockets need none.
type reader struct {
	*buffers
	raw  syscall.RawConn
	try  func(fd uintptr) bool
	tcp  bool
	buf  *buffer
	n    int
	oob  []byte // buffer for control messages; empty if none are received
	oobn int    // length of the control messages
	from unix.Sockaddr
	err  error
}

func newReader(b *buffers, conn syscall.Conn) *reader {
	_, tcp := conn.(*net.TCPConn)
	r := &reader{buffers: b, tcp: tcp}
	r.raw, _ = conn.SyscallConn() // cannot fail for an open connection
	r.try = r.once
	return r
}

// once reads. It returns false if there is nothing to read.
func (r *reader) once(fd uintptr) bool {
	r.buf = r.lend()
	for again := true; again; again = r.err == unix.EINTR {
		if r.tcp {
			r.n, r.err = unix.Read(int(fd), r.buf[:])
		} else if len(r.oob) == 0 {
			r.n, r.from, r.err = unix.Recvfrom(int(fd), r.buf[:], 0)
		} else {
			r.n, r.oobn, _, r.from, r.err = unix.Recvmsg(int(fd), r.buf[:], r.oob, 0)
		}
	}
	if r.err != nil {
		r.giveBack(r.buf)
		r.buf = nil
	}
	return r.err != unix.EAGAIN
}

// read waits for a datagram or for bytes of a connection, and returns n bytes in a borrowed buffer. n is 0 if the peer of a
// connection has closed its side. The caller gives the buffer back if there is no error.
func (r *reader) read() (buf *buffer, n int, from netip.AddrPort, err error) {
	if err := r.raw.Read(r.try); err != nil {
		return nil, 0, from, err
	}
	return r.buf, r.n, addrPort(r.from), r.err
}

// addrPort converts a Sockaddr. A zone is a number.
func addrPort(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		addr := netip.AddrFrom16(a.Addr)
		if a.ZoneId != 0 {
			addr = addr.WithZone(strconv.FormatUint(uint64(a.ZoneId), 10))
		}
		return netip.AddrPortFrom(addr, uint16(a.Port))
	}
	return netip.AddrPort{}
}

// reusePort sets SO_REUSEPORT, so that a successor can listen before this process closes its sockets. It does not set it if the
// kernel chooses the port, or the kernel might choose one that this process has already.
func reusePort(_, address string, c syscall.RawConn) error {
	if strings.HasSuffix(address, ":0") {
		return nil
	}
	if err := setRaw(c, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return fmt.Errorf("set SO_REUSEPORT: %w", err)
	}
	return nil
}

// maxFiles returns the number of descriptors that this process may have.
func maxFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt
	}
	return int(min(limit.Cur, math.MaxInt))
}

// setRaw sets a socket option.
func setRaw(c syscall.RawConn, level, option, value int) (err error) {
	failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, value) })
	return cmp.Or(failed, err)
}

// Errors of Listen and Probe, for errors.Is.
const (
	ErrNotLocal   = unix.EADDRNOTAVAIL // no interface of this machine has the address
	ErrNotAllowed = unix.EACCES        // this process may not listen on the port
	ErrInUse      = unix.EADDRINUSE    // another program has the port
)

const (
	errTooMany    = unix.EMFILE
	errTooManyAll = unix.ENFILE
	errTooLong    = unix.EMSGSIZE
)
