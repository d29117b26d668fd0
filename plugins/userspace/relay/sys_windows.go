// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/windows"

	"github.com/pointsman/pointsman/sdk"
)

// Why Listen and Probe fail, to be asked for with errors.Is.
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

// packets reads datagrams from one socket.
type packets struct {
	*buffers
	conn *net.UDPConn
}

func newPackets(b *buffers, conn *net.UDPConn) *packets { return &packets{b, conn} }

// read returns a borrowed buffer with a datagram of n bytes in it.
func (p *packets) read() (buf *buffer, n int, from netip.AddrPort, err error) {
	buf = p.lend()
	if n, from, err = p.conn.ReadFromUDPAddrPort(buf[:]); err != nil {
		p.giveBack(buf)
		return nil, 0, from, err
	}
	return buf, n, from, nil
}

// reusePort does nothing where a port has one owner.
func reusePort(string, string, syscall.RawConn) error { return nil }

// alive asks whether the socket is still open.
func alive(c syscall.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(uintptr) {})
}

// bindOnce binds a TCP socket and closes it at once.
func bindOnce(at netip.AddrPort) error {
	l, err := net.Listen(network(sdk.TCP, at), at.String())
	if err != nil {
		return err
	}
	return l.Close()
}
