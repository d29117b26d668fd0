// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"encoding/binary"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// receiveDevices has the kernel say by which device each datagram came in: some nodes
// know their pods by that.
func receiveDevices(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("ask for devices: %w", err)
	}
	level, option := unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	if a, ok := conn.LocalAddr().(*net.UDPAddr); ok && a.AddrPort().Addr().Is4() {
		level, option = unix.IPPROTO_IP, unix.IP_PKTINFO
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = unix.SetsockoptInt(int(fd), level, option, 1) }); err != nil {
		return fmt.Errorf("ask for devices: %w", err)
	}
	if inner != nil {
		return fmt.Errorf("ask for devices: %w", inner)
	}
	return nil
}

// receiveDevice makes room for what the kernel says of devices, if that is wanted.
func (p *packets) receiveDevice(wanted bool) {
	if wanted {
		p.oob = make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	}
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
