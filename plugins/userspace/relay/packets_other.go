// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package relay

import (
	"net"
	"net/netip"
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
