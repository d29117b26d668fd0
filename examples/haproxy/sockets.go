// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A socket is one of TCP that a process has.
type socket struct {
	local netip.AddrPort
	state uint64
	queue uint64 // with stateListen: connections that wait to be accepted
	inode string
}

// States of TCP, as the kernel numbers them.
const (
	stateEstablished = 1
	stateSynReceived = 3
	stateCloseWait   = 8
	stateListen      = 10
)

// connections returns how many a process of HAProxy carries: each has a socket to the client and one to
// the endpoint.
func connections(pid int) int {
	n := 0
	for _, s := range sockets(pid) {
		if s.state == stateEstablished || s.state == stateCloseWait {
			n++
		}
	}
	return (n + 1) / 2
}

// sockets returns those of a process; of one that is gone there are none.
func sockets(pid int) (all []socket) {
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	own := make(map[string]bool)
	fds, _ := os.ReadDir(dir)
	for _, fd := range fds {
		link, _ := os.Readlink(dir + fd.Name())
		if inode, ok := strings.CutPrefix(link, "socket:["); ok {
			own[strings.TrimSuffix(inode, "]")] = true
		}
	}
	for s := range tables(pid) {
		if own[s.inode] {
			all = append(all, s)
		}
	}
	return all
}

// tables are all sockets of TCP in a process's network namespace.
func tables(pid int) iter.Seq[socket] {
	return func(yield func(socket) bool) {
		for _, table := range []string{"tcp", "tcp6"} {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table)) // without IPv6 there is no tcp6
			for line := range strings.Lines(string(text)) {
				if s, ok := parseSocket(line); ok && !yield(s) {
					return
				}
			}
		}
	}
}

// parseSocket reads a line of /proc/net/tcp:
//
//	0: 29001E7F:4E70 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 ...
func parseSocket(line string) (s socket, ok bool) {
	word := strings.Fields(line)
	if len(word) < 10 {
		return s, false
	}
	address, port, _ := strings.Cut(word[1], ":")
	number, portErr := strconv.ParseUint(port, 16, 16)
	state, stateErr := strconv.ParseUint(word[3], 16, 8)
	_, received, _ := strings.Cut(word[4], ":")
	queue, queueErr := strconv.ParseUint(received, 16, 32)
	addr, ok := parseAddr(address)
	if !ok || errors.Join(portErr, stateErr, queueErr) != nil {
		return s, false
	}
	return socket{netip.AddrPortFrom(addr, uint16(number)), state, queue, word[9]}, true
}

// parseAddr reads an address in hexadecimal digits, of which each group of eight is in the order of
// this machine: the least byte first.
func parseAddr(digits string) (netip.Addr, bool) {
	var bytes []byte
	for group := range slices.Chunk([]byte(digits), 8) {
		v, err := strconv.ParseUint(string(group), 16, 32)
		if err != nil || len(group) != 8 {
			return netip.Addr{}, false
		}
		bytes = append(bytes, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
	}
	return netip.AddrFromSlice(bytes)
}
