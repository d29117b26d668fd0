// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// receiveDevices makes the kernel tell the device by which each datagram arrives. Some nodes recognize their pods by it.
func (r *reader) receiveDevices(is4 bool) error {
	level, option := unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	if is4 {
		level, option = unix.IPPROTO_IP, unix.IP_PKTINFO
	}
	if err := setRaw(r.raw, level, option, 1); err != nil {
		return fmt.Errorf("receive the device of datagrams: %w", err)
	}
	r.oob = make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	return nil
}

// device returns the device by which the last datagram arrived; empty if it is unknown.
func (r *reader) device() string {
	messages, _ := unix.ParseSocketControlMessage(r.oob[:r.oobn]) // none if that fails
	for _, m := range messages {
		if device, err := net.InterfaceByIndex(deviceOf(m)); err == nil {
			return device.Name
		}
	}
	return ""
}

// deviceOf returns the interface index in a struct in_pktinfo or in6_pktinfo; 0 for other messages.
func deviceOf(m unix.SocketControlMessage) int {
	switch {
	case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
		return int(binary.NativeEndian.Uint32(m.Data))
	case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
		return int(binary.NativeEndian.Uint32(m.Data[16:]))
	}
	return 0
}

// withMark returns a Dialer.Control that sets the mark of packets.
func withMark(mark uint32) func(network, address string, c syscall.RawConn) error {
	if mark == 0 {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		if err := setRaw(c, unix.SOL_SOCKET, unix.SO_MARK, int(mark)); err != nil {
			return fmt.Errorf("set SO_MARK: %w", err)
		}
		return nil
	}
}

// acceptRest accepts all connections that wait in a listening socket. It drops later SYNs. Clients send them again a second
// later, when this socket is closed and another one may listen at its address.
func acceptRest(l *net.TCPListener) (all []*net.TCPConn) {
	raw, err := l.SyscallConn()
	if err != nil {
		return nil
	}
	var files []int
	_ = raw.Control(func(fd uintptr) {
		_ = dropSYN(int(fd))       // if it fails, a client that connects right now may be reset
		for range math.MaxUint16 { // the maximum backlog
			file, _, err := unix.Accept4(int(fd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			if err == nil {
				files = append(files, file)
			} else if err != unix.EINTR && err != unix.ECONNABORTED {
				break
			}
		}
	})
	for _, fd := range files {
		file := os.NewFile(uintptr(fd), "")
		if c, err := net.FileConn(file); err == nil { // with its own descriptor
			all = append(all, c.(*net.TCPConn))
			_ = all[len(all)-1].SetKeepAliveConfig(keepAlive) // fails only if the connection is broken
		}
		file.Close()
	}
	return all
}

// dropSYN makes a listening socket drop packets with SYN and without ACK. Byte 13 of the TCP header has these flags.
func dropSYN(fd int) error {
	const syn, ack, whole = 0x02, 0x10, 0xffffffff
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: syn | ack},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: syn, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: whole},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// originalDestination returns the destination of a connection before a rule redirected it.
func originalDestination(c *net.TCPConn) (to netip.AddrPort, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return to, err
	}
	is4 := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Is4()
	failed := raw.Control(func(fd uintptr) {
		const soOriginalDst = 80 // and IP6T_SO_ORIGINAL_DST
		if is4 {
			var m *unix.IPv6Mreq // as large as a sockaddr_in, and as unstructured
			if m, err = unix.GetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IP, soOriginalDst); err == nil {
				to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(m.Multiaddr[4:8])), binary.BigEndian.Uint16(m.Multiaddr[2:]))
			}
			return
		}
		var m *unix.IPv6MTUInfo // begins with a sockaddr_in6
		if m, err = unix.GetsockoptIPv6MTUInfo(int(fd), unix.IPPROTO_IPV6, soOriginalDst); err == nil {
			to = netip.AddrPortFrom(netip.AddrFrom16(m.Addr.Addr), binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, m.Addr.Port)))
		}
	})
	return to, cmp.Or(failed, err)
}

// awaitReset waits until a connection whose end was read already is closed or reset, and reports whether it was reset.
func awaitReset(c *net.TCPConn) (reset bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Read(func(fd uintptr) bool {
		number, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		reset = err == nil && number != 0
		return reset
	})
	return reset
}
