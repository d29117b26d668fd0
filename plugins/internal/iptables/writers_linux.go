// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Writers reports the names of programs that write to nf_tables. While there is a listener, the kernel composes
// a message for each rule that is written, which slows down writers. So open it only after a repair.
type Writers struct{ fd int }

// ListenToWriters opens a listener in the network namespace of the calling thread.
func ListenToWriters() (*Writers, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	kind := binary.NativeEndian.AppendUint16(nil, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN)
	const whole = 0xffff
	filter := []unix.SockFilter{ // accept only the messages at the end of commits, which name the program
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(binary.BigEndian.Uint16(kind)), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: whole},
		{Code: unix.BPF_RET | unix.BPF_K},
	}
	err = errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)}),
	)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &Writers{fd}, nil
}

// Close closes the listener.
func (w *Writers) Close() error { return unix.Close(w.fd) }

// Others adds to names the other programs that have written since the last call: "nft (pid 7)".
func (w *Writers) Others(names []string) []string {
	buffer := make([]byte, 4096)
	for range 1000 {
		n, err := receive(w.fd, buffer)
		if errors.Is(err, unix.ENOBUFS) {
			continue // the kernel dropped messages
		}
		if err != nil || n < unix.NLMSG_HDRLEN+nfgenmsg {
			break
		}
		pid := attributeBytes(buffer[unix.NLMSG_HDRLEN:n], unix.NFTA_GEN_PROC_PID)
		if len(pid) != 4 || own.has(int(binary.BigEndian.Uint32(pid))) {
			continue
		}
		name := fmt.Sprintf("%s (pid %d)", attribute(buffer[unix.NLMSG_HDRLEN:n], unix.NFTA_GEN_PROC_NAME), binary.BigEndian.Uint32(pid))
		if len(names) < 3 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// children are the processes that this process started most recently.
type children struct {
	mu   sync.Mutex // guards what follows
	pids [64]int
	next int
}

var own children

func (c *children) add(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pids[c.next%len(c.pids)] = pid
	c.next++
}

// has reports whether pid is a thread of this process, or one of the children.
func (c *children) has(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", pid))
	return err == nil || slices.Contains(c.pids[:], pid)
}
