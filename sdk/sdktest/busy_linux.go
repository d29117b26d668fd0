// SPDX-License-Identifier: Apache-2.0

package sdktest

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
	"github.com/pointsman/pointsman/sdk/sdktest/internal/echo"
)

// listeners returns a sentence for each of these sockets that another process has, sorted.
func listeners(wanted map[echo.Socket]bool) []string {
	var busy []string
	for _, table := range []struct {
		name, state string
		protocol    sdk.Protocol
	}{{"tcp", "0A", sdk.TCP}, {"tcp6", "0A", sdk.TCP}, {"udp", "07", sdk.UDP}, {"udp6", "07", sdk.UDP}} {
		file, err := os.Open("/proc/net/" + table.name)
		if err != nil {
			continue // there is no IPv6
		}
		for rows := bufio.NewScanner(file); rows.Scan(); {
			fields := strings.Fields(rows.Text()) // number, local address, remote address, state, …, inode at 9
			if len(fields) < 10 || fields[3] != table.state {
				continue
			}
			at, ok := kernelAddr(fields[1])
			if ok && takes(wanted, echo.Socket{Protocol: table.protocol, Addr: at}) {
				busy = append(busy, fmt.Sprintf("%s listens on %s (%s)", ownerOf(fields[9]), at, table.protocol))
			}
		}
		file.Close()
	}
	slices.Sort(busy)
	return slices.Compact(busy)
}

// takes reports whether a socket gets what is sent to one of those that are wanted.
func takes(wanted map[echo.Socket]bool, has echo.Socket) bool {
	if !has.Addr.Addr().IsUnspecified() {
		return wanted[has]
	}
	for w := range wanted {
		v4 := w.Addr.Addr().Is4() && has.Addr.Addr().Is6() // one of IPv6 may take both
		if w.Protocol == has.Protocol && w.Addr.Port() == has.Addr.Port() && (v4 || w.Addr.Addr().Is4() == has.Addr.Addr().Is4()) {
			return true
		}
	}
	return false
}

// kernelAddr reads "0100007F:1F90": words of the address as this machine's numbers.
func kernelAddr(text string) (netip.AddrPort, bool) {
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

// ownerOf names the process that has the socket with this inode.
func ownerOf(inode string) string {
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is none that fails
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == "socket:["+inode+"]" {
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
			return processName(pid)
		}
	}
	return "a process that is not visible from here"
}
