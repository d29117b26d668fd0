// SPDX-License-Identifier: Apache-2.0

//go:build unix

package relay

import (
	"net"
	"net/netip"
	"strconv"
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
