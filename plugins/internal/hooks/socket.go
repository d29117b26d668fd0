// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net/netip"
	"strconv"
	"strings"
)

// A taking is how a socket of a list takes what is sent to an address.
type taking uint8

const (
	byNothing  taking = iota
	byAddress         // it is bound to it
	byWildcard        // it is bound to all addresses
)

// takenBy says how what is sent to an address is taken, by a list of sockets as the kernel prints it
// (/proc/net/tcp, udp6 and so on). Of TCP those count that listen, which stand first, so that no more is read;
// of UDP those that are connected to nothing.
func takenBy(list io.Reader, protocol string, to netip.AddrPort) (found taking, err error) {
	waits := map[string]string{"tcp": "0A", "udp": "07"}[protocol]
	lines := bufio.NewScanner(list)
	lines.Scan() // the head
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) < 4:
		case words[3] == waits:
			if at, ok := boundAt(words[1]); ok && at.Port() == to.Port() {
				if at.Addr().Unmap() == to.Addr() {
					return byAddress, nil
				}
				if at.Addr().IsUnspecified() {
					found = byWildcard
				}
			}
		case protocol == "tcp":
			return found, nil
		}
	}
	return found, lines.Err()
}

// boundAt reads an address and port as lists of sockets have them, "0A02000C:1F90": 32 bits at a time, in the
// machine's order.
func boundAt(word string) (at netip.AddrPort, ok bool) {
	addr, port, _ := strings.Cut(word, ":")
	bytes, err := hex.DecodeString(addr)
	if err != nil || len(bytes)%4 != 0 {
		return at, false
	}
	for i := 0; i < len(bytes); i += 4 {
		binary.NativeEndian.PutUint32(bytes[i:], binary.BigEndian.Uint32(bytes[i:]))
	}
	ip, ok := netip.AddrFromSlice(bytes)
	n, err := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(ip, uint16(n)), ok && err == nil
}
