// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SubscribeCommits makes c receive a message at the end of each commit. While there is a subscriber, the kernel
// composes a message for each rule that is written, which slows down writers.
func (c *Conn) SubscribeCommits() error {
	kind := native.AppendUint16(nil, newGen)
	const whole = 0xffff
	filter := []unix.SockFilter{ // accept only the messages at the end of commits, which name the program
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(binary.BigEndian.Uint16(kind)), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: whole},
		{Code: unix.BPF_RET | unix.BPF_K},
	}
	var filtered, joined error
	err := c.raw.Control(func(fd uintptr) {
		filtered = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: unsafe.SliceData(filter)})
		joined = unix.SetsockoptInt(int(fd), unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTABLES)
	})
	return errors.Join(err, filtered, joined)
}

// Commits calls f with the thread ID and the name of the program of each commit since the last call.
func (c *Conn) Commits(f func(pid uint32, program string)) {
	for range 1000 {
		ok, err := c.receive(false, func(kind, _ uint16, _ uint32, body []byte) {
			if kind == newGen && len(body) >= 4 {
				f(uint32(getUint(attr(body[4:], 2))), getText(attr(body[4:], 3))) // NFTA_GEN_PROC_PID, NFTA_GEN_PROC_NAME
			}
		})
		if !ok && !errors.Is(err, unix.ENOBUFS) { // ENOBUFS: the kernel dropped messages
			return
		}
	}
}
