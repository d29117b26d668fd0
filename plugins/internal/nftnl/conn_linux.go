// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Conn is a netlink socket to nf_tables in the network namespace in which it was opened. Only one goroutine
// at a time may use it. It can own tables.
type Conn struct {
	file *os.File
	raw  syscall.RawConn
	seq  uint32
	in   []byte
}

// largestBatch is the maximum size of a batch, and answers the size of the receive buffer, since the kernel
// answers for each bad message.
const largestBatch, answers = 64 << 20, 4 << 20

// Dial opens a Conn.
func Dial() (*Conn, error) {
	const kind = unix.SOCK_RAW | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	fd, err := unix.Socket(unix.AF_NETLINK, kind, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	err = errors.Join(
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
		setBuffer(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, largestBatch),
		setBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, answers),
	)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("prepare a netlink socket: %w", err)
	}
	c := &Conn{file: os.NewFile(uintptr(fd), "netlink"), in: make([]byte, 64<<10)}
	if c.raw, err = c.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, c.file.Close())
	}
	return c, nil
}

// setBuffer sets the size of a buffer by the option force, or, in a user namespace, where the kernel forbids that,
// by the option plain, which the sysctl net.core.wmem_max or rmem_max limits. Queries and small batches need no more.
func setBuffer(fd, force, plain, size int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size)
	if errors.Is(err, unix.EPERM) {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, size)
	}
	return err
}

// Close closes the socket. The kernel then deletes the tables that it owns, or leaves them without owner if
// they persist.
func (c *Conn) Close() error { return c.file.Close() }

// within runs f, and interrupts its waiting when ctx ends. It waits for the interruption to finish, so that it
// cannot affect the next call.
func (c *Conn) within(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.file.SetDeadline(time.Time{}); err != nil {
		return err
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = c.file.SetDeadline(time.Unix(1, 0))
	})
	err := f()
	if !stop() {
		<-ended
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// send sends messages in one call.
func (c *Conn) send(b []byte) error {
	var err error
	wait := c.raw.Write(func(fd uintptr) bool {
		err = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return !errors.Is(err, unix.EAGAIN)
	})
	return errors.Join(wait, err)
}

// receive reads one datagram from the kernel and calls f for each message. Without wait it does not block, and
// ok reports whether there was a datagram.
func (c *Conn) receive(wait bool, f func(kind, flags uint16, seq uint32, body []byte)) (ok bool, err error) {
	n := 0
	waited := c.raw.Read(func(fd uintptr) bool {
		n, _, err = unix.Recvfrom(int(fd), c.in, unix.MSG_TRUNC)
		return !wait || !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case waited != nil:
		return false, waited
	case errors.Is(err, unix.EAGAIN):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read from the kernel: %w", err)
	case n > len(c.in):
		return false, errors.New("read from the kernel: a message is too long")
	}
	for b := c.in[:n]; len(b) >= 16; {
		length := int(native.Uint32(b))
		if length < 16 || length > len(b) {
			break
		}
		f(native.Uint16(b[4:]), native.Uint16(b[6:]), native.Uint32(b[8:]), b[16:length])
		b = b[min(len(b), (length+3)&^3):]
	}
	return true, nil
}

// Send sends a batch, which must not be used again. Refusals by the kernel are Faults. After any other error it
// is unknown whether the kernel made the changes.
func (c *Conn) Send(ctx context.Context, b *Batch) error {
	if b.Len() == 0 {
		return nil
	}
	ops, seq := b.Len(), c.seq+1
	out := b.bytes(seq)
	c.seq += uint32(len(b.messages))
	return c.within(ctx, func() error {
		if err := c.send(out); err != nil {
			return fmt.Errorf("send %d operations to the kernel: %w", ops, err)
		}
		return c.answers(b, seq)
	})
}

// answers reads the answers to a batch. The kernel has queued them when the send returns.
func (c *Conn) answers(b *Batch, seq uint32) error {
	var faults Faults
	done := false
	for more := true; more; {
		var err error
		more, err = c.receive(false, func(kind, flags uint16, _ uint32, body []byte) {
			errno, about, offset, text, ok := readAnswer(flags, body)
			switch {
			case kind != unix.NLMSG_ERROR || !ok || about-seq >= uint32(len(b.messages)):
			case errno == 0:
				done = true
			default:
				first, last := b.operations(int(about-seq), offset)
				faults = append(faults, Fault{First: first, Last: last, Errno: errno, Text: text})
			}
		})
		if err != nil {
			return err
		}
	}
	switch {
	case len(faults) > 0:
		return faults
	case !done:
		return errors.New("the kernel did not answer a batch")
	}
	return nil
}

// ask sends a request and calls f for each message of the answer until the end.
func (c *Conn) ask(ctx context.Context, kind, flags uint16, family Family, parts []string, f func(body []byte)) error {
	err := c.askOnce(ctx, kind, flags, family, parts, f)
	if flags == dump && errors.Is(err, syscall.EBUSY) { // the context of an earlier call ended during a list, of which askOnce has read the rest
		err = c.askOnce(ctx, kind, flags, family, parts, f)
	}
	return err
}

func (c *Conn) askOnce(ctx context.Context, kind, flags uint16, family Family, parts []string, f func(body []byte)) error {
	c.seq++
	var out attrs
	message(&out, kind, flags, family, parts...)
	native.PutUint32(out[8:], c.seq)
	lists := flags == dump
	return c.within(ctx, func() error {
		if err := c.send(out); err != nil {
			return fmt.Errorf("ask the kernel: %w", err)
		}
		var result error
		for done := false; !done; {
			_, err := c.receive(true, func(kind, flags uint16, seq uint32, body []byte) {
				ends := kind == unix.NLMSG_ERROR || kind == unix.NLMSG_DONE
				if seq != c.seq { // a late answer to an earlier request
					done = done || ends && result == syscall.EBUSY
					return
				}
				if flags&unix.NLM_F_DUMP_INTR != 0 { // an interrupted dump may have the flag only in its last message
					result = errChanged
				}
				switch {
				case ends:
					done = true
					if len(body) >= 4 {
						if errno := -int32(native.Uint32(body)); errno != 0 {
							result = syscall.Errno(errno)
							done = !lists || result != syscall.EBUSY // the earlier list ends later
						}
					}
				case len(body) >= 4:
					f(body[4:])
				}
			})
			if err != nil {
				return err
			}
		}
		return result
	})
}
