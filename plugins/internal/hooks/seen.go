// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
)

// remembers reports whether a list of xt_recent has an address: "src=198.18.0.7 ttl: 64 last_seen: ...".
func remembers(list string, addr netip.Addr) bool {
	for line := range strings.Lines(list) {
		word, _, _ := strings.Cut(strings.TrimPrefix(line, "src="), " ")
		if a, err := netip.ParseAddr(word); err == nil && a == addr {
			return true
		}
	}
	return false
}

// servers are the virtual servers of IPVS.
type servers struct {
	at    map[string]bool // "tcp 10.96.0.1:80"
	marks map[uint32]bool
}

func (s servers) has(protocol string, at netip.AddrPort, mark uint32) bool {
	return s.at[protocol+" "+at.String()] || s.at[protocol+" "+netip.AddrPortFrom(at.Addr(), 0).String()] || s.marks[mark]
}

// virtualServers reads what /proc/net/ip_vs prints: "TCP  0A600001:0050 rr", "FWM  00000001 rr".
func virtualServers(text string) servers {
	s := servers{make(map[string]bool), make(map[uint32]bool)}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch kind := strings.ToLower(words[0]); kind {
		case "fwm":
			if mark, err := strconv.ParseUint(words[1], 16, 32); err == nil {
				s.marks[uint32(mark)] = true
			}
		case "tcp", "udp", "sctp":
			if at, ok := serverAt(words[1]); ok {
				s.at[kind+" "+at.String()] = true
			}
		}
	}
	return s
}

// serverAt reads "0A600001:0050" and "[fd00:0000:...:0001]:0050".
func serverAt(word string) (netip.AddrPort, bool) {
	i := strings.LastIndexByte(word, ':')
	if i < 0 {
		return netip.AddrPort{}, false
	}
	port, err := strconv.ParseUint(word[i+1:], 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	if v6, err := netip.ParseAddr(strings.Trim(word[:i], "[]")); err == nil {
		return netip.AddrPortFrom(v6, uint16(port)), true
	}
	bytes, err := hex.DecodeString(word[:i])
	addr, ok := netip.AddrFromSlice(bytes)
	return netip.AddrPortFrom(addr, uint16(port)), err == nil && ok
}
