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

// receiveDevices has the kernel say by which device each datagram came in: some nodes
// know their pods by that.
func (r *reader) receiveDevices(is4 bool) error {
	level, option := unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	if is4 {
		level, option = unix.IPPROTO_IP, unix.IP_PKTINFO
	}
	if err := setRaw(r.raw, level, option, 1); err != nil {
		return fmt.Errorf("ask for devices: %w", err)
	}
	r.oob = make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	return nil
}

// device returns the one by which the last datagram came in; empty if that is not known.
func (r *reader) device() string {
	if r.oobn == 0 {
		return ""
	}
	messages, err := unix.ParseSocketControlMessage(r.oob[:r.oobn])
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

// acceptRest accepts all that waits in a listening socket. What calls from then on is not heard,
// and calls again a second later: by then the socket is closed, and another one may listen there.
func acceptRest(l *net.TCPListener) (all []*net.TCPConn) {
	raw, err := l.SyscallConn()
	if err != nil {
		return nil
	}
	var files []int
	_ = raw.Control(func(fd uintptr) {
		_ = dropFirst(int(fd))     // without it, one that calls in this very moment may be reset
		for range math.MaxUint16 { // more cannot wait; without the filter, more may come
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
		if c, err := net.FileConn(file); err == nil { // it has a descriptor of its own
			all = append(all, c.(*net.TCPConn))
			_ = all[len(all)-1].SetKeepAliveConfig(keepAlive) // fails only if it is broken
		}
		file.Close()
	}
	return all
}

// dropFirst has a listening socket drop the packets that begin a connection: those with SYN and
// without ACK, by the flags in byte 13 of TCP's header.
func dropFirst(fd int) error {
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

// originalDestination returns where the client sent a connection to, before a rule
// redirected it.
func originalDestination(c *net.TCPConn) (to netip.AddrPort, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return to, err
	}
	is4 := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Is4()
	asked := raw.Control(func(fd uintptr) {
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
	return to, cmp.Or(asked, err)
}

// awaitReset waits until a connection of which all was read is reset or closed, and reports whether it was reset: no read
// would notice it.
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
