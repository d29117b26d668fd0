// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// The states of sockets that take what comes from anywhere, as /proc/net has them.
const (
	tcpListen = "0A"
	udpBound  = "07"
)

// listening lists the sockets that listen in this network namespace.
func listening() []Socket {
	var all []Socket
	for _, table := range []struct {
		name, state string
		protocol    sdk.Protocol
	}{{"tcp", tcpListen, sdk.TCP}, {"tcp6", tcpListen, sdk.TCP}, {"udp", udpBound, sdk.UDP}, {"udp6", udpBound, sdk.UDP}} {
		file, err := os.Open("/proc/net/" + table.name)
		if err != nil {
			continue // no IPv6
		}
		all = append(all, read(file, table.state, table.protocol)...)
		file.Close()
	}
	return all
}

// maxRows bounds what is read of one table.
const maxRows = 1 << 18

// read reads one of the kernel's tables. Those of TCP begin with what listens, so
// that the connections, which may be very many, are not read.
func read(file *os.File, state string, protocol sdk.Protocol) (all []Socket) {
	lines := bufio.NewScanner(file)
	lines.Scan() // the heading
	for rows := 0; lines.Scan() && rows < maxRows; rows++ {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 {
			continue
		}
		if fields[3] != state {
			if protocol == sdk.TCP {
				return all
			}
			continue
		}
		addr, ok := parseAddr(fields[1])
		inode, err := strconv.ParseUint(fields[9], 10, 64)
		if ok && err == nil {
			all = append(all, Socket{Addr: addr, Protocol: protocol, Inode: inode})
		}
	}
	return all
}

// parseAddr reads "0100007F:1F90": words of the address as this machine's numbers.
func parseAddr(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")
	number, err := strconv.ParseUint(port, 16, 16)
	words, err2 := hex.DecodeString(host)
	if err != nil || err2 != nil || len(words)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(words); i += 4 {
		binary.NativeEndian.PutUint32(words[i:], binary.BigEndian.Uint32(words[i:]))
	}
	addr, ok := netip.AddrFromSlice(words)
	return netip.AddrPortFrom(addr.Unmap(), uint16(number)), ok
}

// owners finds the processes of the sockets with these inodes. One that no process seems
// to have may be ours if the sockets of one of ours cannot be seen.
func owners(inodes map[uint64]bool, own []int) map[uint64]owner {
	own = append(own, os.Getpid())
	found := make(map[uint64]owner)
	hidden := false
	for _, pid := range own {
		has, ok := socketsOf(pid)
		hidden = hidden || !ok
		for _, inode := range has {
			if inodes[inode] {
				found[inode] = owner{ours: true}
			}
		}
	}
	pids, _ := filepath.Glob("/proc/[0-9]*")
	for i := 0; i < len(pids) && len(found) < len(inodes); i++ {
		pid, _ := strconv.Atoi(filepath.Base(pids[i]))
		if slices.Contains(own, pid) {
			continue
		}
		has, _ := socketsOf(pid)
		for _, inode := range has {
			if _, known := found[inode]; inodes[inode] && !known {
				found[inode] = owner{name: nameOf(pid)}
			}
		}
	}
	for inode := range inodes {
		if _, known := found[inode]; !known {
			found[inode] = owner{ours: hidden}
		}
	}
	return found
}

// socketsOf returns the inodes of a process's sockets.
func socketsOf(pid int) (inodes []uint64, ok bool) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, false
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		text, is := strings.CutPrefix(target, "socket:[")
		if err != nil || !is {
			continue
		}
		if inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64); err == nil {
			inodes = append(inodes, inode)
		}
	}
	return inodes, true
}

func nameOf(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return fmt.Sprintf("a process, pid %d,", pid)
	}
	return fmt.Sprintf("%s, pid %d,", strings.TrimSpace(string(name)), pid)
}
