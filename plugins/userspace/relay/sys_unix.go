// SPDX-License-Identifier: Apache-2.0

//go:build unix

package relay

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A reader reads from one socket, with buffers that are borrowed only when there is
// something to read: ten thousand sockets that wait need none.
type reader struct {
	*buffers
	raw  syscall.RawConn
	try  func(fd uintptr) bool
	tcp  bool
	buf  *buffer
	n    int
	oob  []byte // room for the kernel's control messages; empty: none are wanted
	oobn int    // how much of it was used
	from unix.Sockaddr
	err  error
}

func newReader(b *buffers, conn syscall.Conn) *reader {
	_, tcp := conn.(*net.TCPConn)
	r := &reader{buffers: b, tcp: tcp}
	r.raw, _ = conn.SyscallConn() // of an open connection of package net there is one
	r.try = r.once
	return r
}

// once reads if there is something to read. It is false if there is not.
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

// read returns a borrowed buffer with a datagram of n bytes in it, or what a connection
// received; none, if the other end has closed its side.
func (r *reader) read() (buf *buffer, n int, from netip.AddrPort, err error) {
	if err := r.raw.Read(r.try); err != nil {
		return nil, 0, from, err
	}
	return r.buf, r.n, addrPort(r.from), r.err
}

// addrPort converts an address of the kernel's. A zone is its number.
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

// reusePort lets another process of the same user listen on the same port too: a
// successor, before this one closes. A port that the kernel is to choose is not shared,
// or it might choose one that this process has.
func reusePort(_, address string, c syscall.RawConn) error {
	if strings.HasSuffix(address, ":0") {
		return nil
	}
	if err := setRaw(c, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return fmt.Errorf("share a port: %w", err)
	}
	return nil
}

// setRaw sets an option of a socket of package net.
func setRaw(c syscall.RawConn, level, option, value int) (err error) {
	asked := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, value) })
	return cmp.Or(asked, err)
}

// bindOnce binds a TCP socket and closes it at once. It does not listen, so no client is
// ever answered.
func bindOnce(at netip.AddrPort) error {
	domain, addr := sockaddr(at)
	fd, err := unix.Socket(domain, unix.SOCK_STREAM, 0)
	if err != nil {
		return fmt.Errorf("make a socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fmt.Errorf("let a socket take a port in TIME_WAIT: %w", err)
	}
	if err := unix.Bind(fd, addr); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

func sockaddr(at netip.AddrPort) (domain int, addr unix.Sockaddr) {
	port := int(at.Port())
	if ip := at.Addr(); ip.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: ip.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: at.Addr().As16()}
}

// Why Listen and Probe fail, to be asked for with errors.Is.
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
