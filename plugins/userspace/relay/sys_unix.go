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

// packets reads datagrams from one socket, with buffers that are borrowed only when
// there is a datagram: ten thousand sockets that wait need none.
type packets struct {
	*buffers
	conn *net.UDPConn
	raw  syscall.RawConn
	try  func(fd uintptr) bool
	buf  *buffer
	n    int
	oob  []byte // room for the kernel's control messages; empty: none are wanted
	oobn int    // how much of it was used
	from unix.Sockaddr
	err  error
}

func newPackets(b *buffers, conn *net.UDPConn) *packets {
	p := &packets{buffers: b, conn: conn}
	p.try = p.once
	return p
}

// once reads a datagram if there is one. It is false if there is none.
func (p *packets) once(fd uintptr) bool {
	p.buf = p.lend()
	for again := true; again; again = p.err == unix.EINTR {
		if len(p.oob) == 0 {
			p.n, p.from, p.err = unix.Recvfrom(int(fd), p.buf[:], 0)
		} else {
			p.n, p.oobn, _, p.from, p.err = unix.Recvmsg(int(fd), p.buf[:], p.oob, 0)
		}
	}
	if p.err != nil {
		p.giveBack(p.buf)
		p.buf = nil
	}
	return p.err != unix.EAGAIN
}

// read returns a borrowed buffer with a datagram of n bytes in it.
func (p *packets) read() (buf *buffer, n int, from netip.AddrPort, err error) {
	if p.raw == nil {
		if p.raw, err = p.conn.SyscallConn(); err != nil {
			return nil, 0, from, err
		}
	}
	if err := p.raw.Read(p.try); err != nil {
		return nil, 0, from, err
	}
	return p.buf, p.n, addrPort(p.from), p.err
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

// alive asks the kernel whether it still has the socket.
func alive(c syscall.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("look at a socket: %w", err)
	}
	asked := raw.Control(func(fd uintptr) { _, err = unix.Getsockname(int(fd)) })
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
