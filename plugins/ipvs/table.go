// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// A table is what the destinations of all virtual services have to do. By messages the kernel
// lists the destinations of one virtual service only, which takes seconds where there are many.
type table map[serviceKey]map[netip.AddrPort]load

// protocolOf is the protocol that the kernel calls name, if we serve it.
func protocolOf(name string) (sdk.Protocol, bool) {
	p, ok := map[string]sdk.Protocol{"TCP": sdk.TCP, "UDP": sdk.UDP, "SCTP": sdk.SCTP}[name]
	return p, ok
}

// readTable reads /proc/net/ip_vs:
//
//	TCP  AC1E0029:0050 rr persistent 10800 FFFFFFFF
//	  -> 0AB40001:1F90      Masq    1      0          0
//
// Virtual servers of marks are left out: of those it does not say in which family.
func readTable(r io.Reader) (table, error) {
	all := make(table)
	var dests map[netip.AddrPort]load // nil: they are passed over
	for lines := bufio.NewScanner(r); ; {
		if !lines.Scan() {
			return all, lines.Err()
		}
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		protocol, serves := protocolOf(words[0])
		switch {
		case serves:
			at, err := hexPair(words[1])
			if err != nil {
				return nil, err
			}
			dests = make(map[netip.AddrPort]load)
			all[serviceKey{family: sdk.FamilyOf(at.Addr()), protocol: protocol, addr: at}] = dests
		case words[0] != "->":
			dests = nil
		case dests != nil:
			dest, l, err := destLine(words)
			if err != nil {
				return nil, err
			}
			dests[dest] = l
		}
	}
}

// destLine reads the words of a destination: an arrow, its address, how packets get there, its
// weight, its connections, and those that are over.
func destLine(words []string) (netip.AddrPort, load, error) {
	if len(words) < 6 {
		return netip.AddrPort{}, load{}, fmt.Errorf("read a real: %q", words)
	}
	at, err := hexPair(words[1])
	if err != nil {
		return netip.AddrPort{}, load{}, err
	}
	var counts [3]int
	for i := range counts {
		if counts[i], err = strconv.Atoi(words[3+i]); err != nil {
			return netip.AddrPort{}, load{}, fmt.Errorf("read a real: %w", err)
		}
	}
	return at, load{weight: counts[0], active: counts[1], inactive: counts[2]}, nil
}

// hexPair reads an address and a port that stand together: "AC1E0029:0050", or
// "[fd00:0172:0030:0000:0000:0000:0000:0041]:0050".
func hexPair(text string) (netip.AddrPort, error) {
	i := max(0, strings.LastIndexByte(text, ':'))
	at, ok := hexAddr(strings.Trim(text[:i], "[]"), strings.TrimPrefix(text[i:], ":"))
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("read an address and a port: %q", text)
	}
	return at, nil
}
