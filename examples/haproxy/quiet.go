// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// A listening socket that is closed takes with it the connections that the kernel has made and HAProxy
// has not accepted: their clients get a reset. So before HAProxy closes its sockets they are made quiet:
// a filter drops the first packet of each new connection, and what is in the queue is accepted. A client
// whose packet was dropped sends it again after a second, and then finds what listens at the address by
// then, such as another dataplane.

// quietTime is how long queues may take to be empty: a handshake that has begun may need a round trip.
const quietTime = 2 * time.Second

// quiet has no new connection come to the instance, and waits until it has accepted all that came before.
func (i *instance) quiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, quietTime)
	defer cancel()
	fds, err := i.api().listeners(ctx)
	if err != nil {
		return fmt.Errorf("the sockets on which HAProxy listens: %w", err)
	}
	for _, fd := range fds {
		err = errors.Join(err, dropFirst(fd), unix.Close(fd))
	}
	for err == nil && waiting(i.process.PID()) {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("HAProxy has not accepted every connection: %w", ctx.Err())
		}
	}
	return err
}

// dropFirst has a listening socket of TCP drop the packets that begin a connection: those with SYN and
// without ACK, by the flags in byte 13 of TCP's header. Of any other socket nothing is dropped.
func dropFirst(fd int) error {
	if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listens == 0 {
		return err
	}
	if protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil || protocol != unix.IPPROTO_TCP {
		return err
	}
	const syn, ack, all = 0x02, 0x10, 0xffffffff
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: syn | ack},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: syn, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: all},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// waiting reports whether a process has a connection to accept, or a handshake that is not done.
func waiting(pid int) bool {
	own := make(map[netip.AddrPort]bool)
	for _, s := range sockets(pid) {
		if s.state == stateListen {
			own[s.local] = true
			if s.queue > 0 {
				return true
			}
		}
	}
	for s := range tables(pid) {
		if s.state == stateSynReceived && own[s.local] {
			return true
		}
	}
	return false
}

// listeners returns the sockets on which HAProxy listens, as another HAProxy gets them with -x: their
// number, then the descriptors, as many as fit with each message, which is acknowledged. What
// the messages say besides is of no use here. The caller closes them.
func (a api) listeners(ctx context.Context) (fds []int, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", string(a))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := io.WriteString(conn, "_getsocks\n"); err != nil {
		return nil, err
	}
	var number int32
	if err := binary.Read(conn, binary.NativeEndian, &number); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, fd := range fds {
				_ = unix.Close(fd)
			}
			fds = nil
		}
	}()
	const perMessage = 253
	data, rights := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4*perMessage))
	for len(fds) < int(number) {
		_, n, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(data, rights)
		if err != nil {
			return fds, err
		}
		messages, err := unix.ParseSocketControlMessage(rights[:n])
		if err != nil {
			return fds, err
		}
		before := len(fds)
		for _, m := range messages {
			some, err := unix.ParseUnixRights(&m)
			if err != nil {
				return fds, err
			}
			fds = append(fds, some...)
		}
		if len(fds) == before {
			return fds, errors.New("HAProxy sent fewer than it said")
		}
		if len(fds) == int(number) {
			break // HAProxy does not wait for this answer
		}
		if err := binary.Write(conn, binary.NativeEndian, int32(len(fds))); err != nil {
			return fds, err
		}
	}
	return fds, nil
}
