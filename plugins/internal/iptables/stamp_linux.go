// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Stamp is that of the tables nat, filter and mangle, in the network namespace of the
// calling thread.
func (t Tool) Stamp() (s Stamp, err error) {
	if t.Backend == NFT {
		s.generation, err = generation()
		return s, err
	}
	for i, table := range []string{"nat", "filter", "mangle"} {
		if s.sizes[i], err = TableSize(t.Family, table); err != nil {
			return s, err
		}
	}
	return s, nil
}

// generation is the number that the kernel gives to what nft's tables say now.
func generation() (uint32, error) {
	request := nfMessage(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, unix.NLM_F_REQUEST, unix.AF_UNSPEC, 0, nil)
	answer, err := askNetfilter(request)
	if err == nil {
		err = refusal(answer)
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the generation of nft's tables: %w", err)
	}
	for at := unix.NLMSG_HDRLEN + nfgenmsg; at+8 <= len(answer); {
		size, kind := binary.NativeEndian.Uint16(answer[at:]), binary.NativeEndian.Uint16(answer[at+2:])
		if kind == unix.NFTA_GEN_ID {
			return binary.BigEndian.Uint32(answer[at+4:]), nil
		}
		at += int(size+3) &^ 3
		if size < 4 {
			break
		}
	}
	return 0, fmt.Errorf("ask for the generation of nft's tables: %w", unix.EPROTO)
}

// askNetfilter sends messages and returns the first answer.
func askNetfilter(messages []byte) ([]byte, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return nil, err
	}
	if err := unix.Sendto(fd, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return nil, err
	}
	return answer[:n], nil
}
