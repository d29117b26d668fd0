// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// backlog is how many connections may wait to be accepted; the kernel lowers it to
// net.core.somaxconn.
const backlog = 1<<16 - 1

// listenAt makes a socket that listens. Connections that it accepts inherit its options.
func listenAt(at netip.AddrPort) (fd int, err error) {
	domain, addr := sockaddr(at)
	fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make a socket: %w", err)
	}
	set := []error{
		setOption(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		setKeepAlive(fd),
	}
	if domain == unix.AF_INET6 {
		set = append(set, setOption(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1))
	}
	if at.Port() != 0 {
		set = append(set, setOption(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)) // see reusePort
	}
	err = errors.Join(set...)
	if err == nil {
		err = unix.Bind(fd, addr)
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("listen: %w", err)
	}
	return fd, nil
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

// setKeepAlive has the kernel find out when the other end of fd is gone without a word.
func setKeepAlive(fd int) error {
	return errors.Join(
		setOption(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAlive.Idle/time.Second)),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAlive.Interval/time.Second)),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAlive.Count),
	)
}

func portOf(fd int) uint16 {
	addr, err := unix.Getsockname(fd)
	if err != nil {
		return 0
	}
	return addrPort(addr).Port()
}

// connectTo begins to connect to an endpoint. The socket is writable when that has
// accepted.
func connectTo(ep netip.AddrPort, mark uint32) (fd int, err error) {
	domain := unix.AF_INET6
	if ep.Addr().Is4() {
		domain = unix.AF_INET
	}
	fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make a socket: %w", err)
	}
	err = setOption(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if mark != 0 && err == nil {
		err = setOption(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark))
	}
	if err == nil {
		err = setKeepAlive(fd)
	}
	if err == nil {
		err = connect(fd, ep)
	}
	if err != nil && err != unix.EINPROGRESS {
		closeFile(fd)
		return -1, fmt.Errorf("connect: %w", err)
	}
	return fd, nil
}

// socketError returns why fd failed.
func socketError(fd int) error {
	number, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	return unix.Errno(number)
}

// What follows are the system calls that a loop makes for each connection and each event.
// None of them blocks, so they are raw: Go's scheduler would take them for calls that
// may block, check on them every 20 µs, and on a busy machine give the loop's processor
// away during one.

// result turns what a raw system call returns into what Go functions return.
func result(n uintptr, errno unix.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// read reads into buf, which is not empty.
func read(fd int, buf []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
		if errno != unix.EINTR {
			return result(n, errno)
		}
	}
}

// write writes buf, which is not empty. MSG_NOSIGNAL: a socket that the other side has
// closed is an error, not a signal.
func write(fd int, buf []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), unix.MSG_NOSIGNAL, 0, 0)
		if errno != unix.EINTR {
			return result(n, errno)
		}
	}
}

// splice moves up to n bytes inside the kernel; one of the two is a pipe.
func splice(from, to, n int) (int, error) {
	for {
		moved, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n), unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if errno != unix.EINTR {
			return result(moved, errno)
		}
	}
}

// poll fills in events that have happened, and returns how many.
func poll(epoll int, events []unix.EpollEvent) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	return result(n, errno)
}

// accept accepts one connection, and returns the address of its client.
func accept(fd int) (conn int, from netip.AddrPort, err error) {
	var addr sockaddress
	size := uint32(unsafe.Sizeof(addr))
	n, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&addr)), uintptr(unsafe.Pointer(&size)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	conn, err = result(n, errno)
	return conn, addr.addrPort(), err
}

// connect begins to connect fd.
func connect(fd int, to netip.AddrPort) error {
	addr, size := sockaddressOf(to)
	_, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&addr)), uintptr(size))
	_, err := result(0, errno)
	return err
}

func setOption(fd, level, option, value int) error {
	to := int32(value)
	_, _, errno := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(unsafe.Pointer(&to)), unsafe.Sizeof(to), 0)
	_, err := result(0, errno)
	return err
}

// closeFile closes a descriptor. A socket sends in the background what is left to send.
func closeFile(fd int) { unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// resetFile closes a socket with a reset.
func resetFile(fd int) {
	at := unix.Linger{Onoff: 1}
	unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER, uintptr(unsafe.Pointer(&at)), unsafe.Sizeof(at), 0) // of one that is broken already: then it needs no reset
	closeFile(fd)
}

// shutdownWrite says that no more will be written. Its error is one of a connection that
// has ended.
func shutdownWrite(fd int) { unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0) }

// A sockaddress is the kernel's struct sockaddr_in, or sockaddr_in6.
type sockaddress [unix.SizeofSockaddrInet6]byte

func sockaddressOf(a netip.AddrPort) (raw sockaddress, size int) {
	binary.BigEndian.PutUint16(raw[2:], a.Port())
	if ip := a.Addr(); ip.Is4() {
		binary.NativeEndian.PutUint16(raw[:], unix.AF_INET)
		four := ip.As4()
		copy(raw[4:], four[:])
		return raw, unix.SizeofSockaddrInet4
	}
	binary.NativeEndian.PutUint16(raw[:], unix.AF_INET6)
	sixteen := a.Addr().As16()
	copy(raw[8:], sixteen[:])
	return raw, unix.SizeofSockaddrInet6
}

func (raw *sockaddress) addrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16(raw[2:])
	switch binary.NativeEndian.Uint16(raw[:]) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(raw[4:8])), port)
	case unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(raw[8:24])), port)
	}
	return netip.AddrPort{}
}

// soOriginalDst is SO_ORIGINAL_DST, and IP6T_SO_ORIGINAL_DST.
const soOriginalDst = 80

// originalDestination returns where the client sent a connection to, before a rule
// redirected it.
func originalDestination(fd int, is4 bool) (netip.AddrPort, error) {
	var addr sockaddress
	level, size := uintptr(unix.IPPROTO_IPV6), uint32(unix.SizeofSockaddrInet6)
	if is4 {
		level, size = unix.IPPROTO_IP, unix.SizeofSockaddrInet4
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), level, soOriginalDst, uintptr(unsafe.Pointer(&addr)), uintptr(unsafe.Pointer(&size)), 0)
	_, err := result(0, errno)
	return addr.addrPort(), err
}
