// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"encoding/binary"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// receiveDevices has the kernel say by which device each datagram came in: some nodes
// know their pods by that.
func (p *packets) receiveDevices() error {
	level, option := unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	if p.conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Is4() {
		level, option = unix.IPPROTO_IP, unix.IP_PKTINFO
	}
	raw, err := p.conn.SyscallConn()
	if err == nil {
		err = setRaw(raw, level, option, 1)
	}
	if err != nil {
		return fmt.Errorf("ask for devices: %w", err)
	}
	p.oob = make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	return nil
}

// device returns the one by which the last datagram came in; empty if that is not known.
func (p *packets) device() string {
	if p.oobn == 0 {
		return ""
	}
	messages, err := unix.ParseSocketControlMessage(p.oob[:p.oobn])
	if err != nil {
		return ""
	}
	for _, m := range messages {
		if i := deviceOf(m); i > 0 {
			if device, err := net.InterfaceByIndex(i); err == nil {
				return device.Name
			}
		}
	}
	return ""
}

// deviceOf reads the kernel's struct in_pktinfo, or in6_pktinfo.
func deviceOf(m unix.SocketControlMessage) int {
	switch {
	case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
		return int(binary.NativeEndian.Uint32(m.Data))
	case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
		return int(binary.NativeEndian.Uint32(m.Data[16:]))
	}
	return 0
}

// withMark makes a Dialer put mark on the packets of its connections; zero: none.
func withMark(mark uint32) func(network, address string, c syscall.RawConn) error {
	if mark == 0 {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		if err := setRaw(c, unix.SOL_SOCKET, unix.SO_MARK, int(mark)); err != nil {
			return fmt.Errorf("mark a socket: %w", err)
		}
		return nil
	}
}
