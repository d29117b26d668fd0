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

// serverAt reads an address and port as IPVS writes them, "0A600001:0050" and "[fd00:0000:...:0001]:0050".
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
