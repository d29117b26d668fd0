// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// soOriginalDst is SO_ORIGINAL_DST, and IP6T_SO_ORIGINAL_DST.
const soOriginalDst = 80

// originalOf is where the caller sent the connection to, before a rule changed it.
// The kernel says so in its struct sockaddr_in, or sockaddr_in6.
func originalOf(fd int, is4 bool) (netip.AddrPort, error) {
	var raw [unix.SizeofSockaddrInet6]byte
	level, size := unix.IPPROTO_IPV6, uint32(unix.SizeofSockaddrInet6)
	if is4 {
		level, size = unix.IPPROTO_IP, unix.SizeofSockaddrInet4
	}
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), soOriginalDst, uintptr(unsafe.Pointer(&raw)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return netip.AddrPort{}, fmt.Errorf("ask where a connection was sent to: %w", errno)
	}
	port := binary.BigEndian.Uint16(raw[2:])
	if is4 {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(raw[4:8])), port), nil
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(raw[8:24])), port), nil
}

// marked makes a Dialer put mark on what it sends; zero: none.
func marked(mark uint32) func(network, address string, c syscall.RawConn) error {
	if mark == 0 {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		var inner error
		err := c.Control(func(fd uintptr) { inner = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark)) })
		if err == nil && inner != nil {
			err = fmt.Errorf("mark a socket: %w", inner)
		}
		return err
	}
}
