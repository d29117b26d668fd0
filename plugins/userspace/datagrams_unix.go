// SPDX-License-Identifier: Apache-2.0

//go:build unix

package userspace

import (
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Datagrams are read from one socket with buffers that are borrowed only when
// there is one: ten thousand sockets that wait need none.
type datagrams struct {
	*buffers
	conn *net.UDPConn
	raw  syscall.RawConn
	try  func(fd uintptr) bool
	buf  *buffer
	n    int
	oob  []byte // not empty: room for what the kernel says beside
	said int    // how much of it there is
	from unix.Sockaddr
	err  error
}

func newDatagrams(b *buffers, conn *net.UDPConn) *datagrams {
	d := &datagrams{buffers: b, conn: conn}
	d.try = d.once
	return d
}

func (d *datagrams) once(fd uintptr) bool {
	d.buf = d.lend()
	for again := true; again; again = d.err == unix.EINTR {
		if len(d.oob) == 0 {
			d.n, d.from, d.err = unix.Recvfrom(int(fd), d.buf[:], 0)
		} else {
			d.n, d.said, _, d.from, d.err = unix.Recvmsg(int(fd), d.buf[:], d.oob, 0)
		}
	}
	if d.err != nil {
		d.giveBack(d.buf)
		d.buf = nil
	}
	return d.err != unix.EAGAIN
}

// read returns a borrowed buffer with a datagram of n bytes in it.
func (d *datagrams) read() (buf *buffer, n int, from netip.AddrPort, err error) {
	if d.raw == nil {
		if d.raw, err = d.conn.SyscallConn(); err != nil {
			return nil, 0, from, err
		}
	}
	if err := d.raw.Read(d.try); err != nil {
		return nil, 0, from, err
	}
	return d.buf, d.n, addrPort(d.from), d.err
}

// addrPort is a, an address of the kernel's. A zone is its number.
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
