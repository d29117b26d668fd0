// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// Events are the changes of nft's tables in one network namespace, as the kernel
// tells them to the process that listens.
type Events struct {
	file   *os.File
	buffer []byte
	open   Commit // what was read of a commit that is not complete

	// Matters, if not nil, says which losses are told of. It is called in Next.
	Matters func(Gone) bool
}

// room is for what the kernel tells while another process changes a lot.
const room = 8 << 20

// Listen begins to listen in the network namespace of the calling thread. A kernel
// without nf_tables has nothing to tell, and that is an error.
func Listen() (*Events, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("listen to nft: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room); err != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room) // as much as anyone may have
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen to nft: %w", err)
	}
	return &Events{file: os.NewFile(uintptr(fd), "nft events"), buffer: make([]byte, 64<<10)}, nil
}

// Close ends listening, and a Next that waits.
func (e *Events) Close() error { return e.file.Close() }

// Ignore keeps the kernel from telling what the program with process id pid does, so
// that a big load of ours is not read back for nothing. Zero: it tells everything
// again. A program's changes are told before it ends.
func (e *Events) Ignore(pid int) error {
	raw, err := e.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("ignore process %d: %w", pid, err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if pid == 0 {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
			return
		}
		filter := notFrom(pid)
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("ignore process %d: %w", pid, err)
	}
	return nil
}

// notFrom is a filter of messages: those that a process caused do not pass. Messages
// that come together are of one commit, so one look at the first header is enough.
func notFrom(pid int) []unix.SockFilter {
	const portAt = 12 // nlmsg_pid in struct nlmsghdr
	port := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, uint32(pid)))
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: portAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: port, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1},
	}
}

// Next waits for a commit that took something away. It ends with an error when e
// is closed.
func (e *Events) Next() (Commit, error) {
	for {
		n, err := e.file.Read(e.buffer)
		switch {
		case errors.Is(err, syscall.ENOBUFS):
			e.open.Missed = true // it says so once, and goes on with what comes next
			return e.take(), nil
		case err != nil:
			return Commit{}, fmt.Errorf("listen to nft: %w", err)
		}
		if e.read(e.buffer[:n]) {
			return e.take(), nil
		}
	}
}

func (e *Events) take() Commit {
	c := e.open
	e.open = Commit{}
	return c
}

// read takes messages in, and reports whether a commit with losses is complete.
func (e *Events) read(data []byte) bool {
	messages, err := syscall.ParseNetlinkMessage(data)
	if err != nil {
		e.open.Missed = true
		return true
	}
	complete := false
	for _, m := range messages {
		if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) < nfgenmsg {
			continue
		}
		e.open.Port = m.Header.Pid
		complete = e.message(m.Header.Type&0xff, m.Data) || complete
	}
	return complete
}

// message takes one in, and reports whether it ends a commit with losses.
func (e *Events) message(kind uint16, data []byte) bool {
	family, ok := families[data[0]]
	switch kind {
	case unix.NFT_MSG_NEWGEN:
		if len(e.open.Gone) == 0 && !e.open.Missed {
			e.open = Commit{}
			return false
		}
		e.open.Program = attribute(data, unix.NFTA_GEN_PROC_NAME)
		return true
	case unix.NFT_MSG_DELTABLE:
		e.gone(ok, family, ID{Table: attribute(data, unix.NFTA_TABLE_NAME)})
	case unix.NFT_MSG_DELCHAIN:
		e.gone(ok, family, ID{attribute(data, unix.NFTA_CHAIN_TABLE), attribute(data, unix.NFTA_CHAIN_NAME)})
	case unix.NFT_MSG_DELRULE:
		e.gone(ok, family, ID{attribute(data, unix.NFTA_RULE_TABLE), attribute(data, unix.NFTA_RULE_CHAIN)})
	}
	return false
}

func (e *Events) gone(ours bool, family sdk.Family, id ID) {
	if g := (Gone{family, id}); ours && (e.Matters == nil || e.Matters(g)) {
		e.open.add(g)
	}
}

// families are those that iptables has tables of.
var families = map[byte]sdk.Family{unix.NFPROTO_IPV4: sdk.IPv4, unix.NFPROTO_IPV6: sdk.IPv6}
