// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package userspace

import (
	"net"
	"net/netip"
)

// Datagrams are read from one socket.
type datagrams struct {
	*buffers
	conn *net.UDPConn
}

func newDatagrams(b *buffers, conn *net.UDPConn) *datagrams { return &datagrams{b, conn} }

// hear and device: nothing says on which device a datagram came in.
func (d *datagrams) hear(bool)      {}
func (d *datagrams) device() string { return "" }

// read returns a borrowed buffer with a datagram of n bytes in it.
func (d *datagrams) read() (buf *buffer, n int, from netip.AddrPort, err error) {
	buf = d.lend()
	if n, from, err = d.conn.ReadFromUDPAddrPort(buf[:]); err != nil {
		d.giveBack(buf)
		return nil, 0, from, err
	}
	return buf, n, from, nil
}
