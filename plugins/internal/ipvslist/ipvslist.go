// SPDX-License-Identifier: Apache-2.0

// Package ipvslist parses the tables of IPVS in /proc/net, for the mode ipvs and for traces of packets through
// the node. Netlink lists the destinations of only one virtual server per request, which takes seconds if there
// are many. The package never changes IPVS. Start with Read.
package ipvslist

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// A Server is a virtual server with an address or a mark.
type Server struct {
	Protocol  sdk.Protocol   // unset with a mark
	Addr      netip.AddrPort // unset with a mark; port 0 means all ports
	Mark      uint32
	Scheduler string
	Dests     map[netip.AddrPort]Load
}

// A Load has the weight and the connection counts of a destination.
type Load struct{ Weight, Active, Inactive int }

// Family returns the family of the addresses. It is unknown for a virtual server with a mark and no
// destinations.
func (s Server) Family() sdk.Family {
	for dest := range s.Dests {
		return sdk.FamilyOf(dest.Addr())
	}
	if s.Mark != 0 {
		return 0
	}
	return sdk.FamilyOf(s.Addr.Addr())
}

// Read parses /proc/net/ip_vs. It ignores virtual servers of other protocols:
//
//	TCP  AC1E0029:0050 rr persistent 10800 FFFFFFFF
//	  -> 0AB40001:1F90      Masq    1      0          0
//	FWM  6E000001 rr
func Read(r io.Reader) (all []Server, err error) {
	known := false // the last server is in the result
	for lines := bufio.NewScanner(r); ; {
		if !lines.Scan() {
			return all, lines.Err()
		}
		words := strings.Fields(lines.Text())
		if len(words) < 3 {
			continue
		}
		s := Server{Scheduler: words[2], Dests: make(map[netip.AddrPort]Load)}
		switch s.Protocol = Protocol(words[0]); {
		case words[0] == "->":
			if known {
				err = all[len(all)-1].addDest(words)
			}
		case words[0] == "FWM":
			var mark uint64
			mark, err = strconv.ParseUint(words[1], 16, 32)
			s.Mark = uint32(mark)
			known, all = true, append(all, s)
		case s.Protocol != 0:
			s.Addr, err = pair(words[1])
			known, all = true, append(all, s)
		default:
			known = false
		}
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", lines.Text(), err)
		}
	}
}

// addDest adds the destination of a line: an arrow, address, forwarding method, weight, active and inactive
// connections.
func (s Server) addDest(words []string) error {
	if len(words) < 6 {
		return io.ErrUnexpectedEOF
	}
	dest, err := pair(words[1])
	var l Load
	for i, n := range []*int{&l.Weight, &l.Active, &l.Inactive} {
		if err == nil {
			*n, err = strconv.Atoi(words[3+i])
		}
	}
	s.Dests[dest] = l
	return err
}

// pair parses an address and port: "AC1E0029:0050", or "[fd00:0172:0030:0000:0000:0000:0000:0041]:0050".
func pair(text string) (netip.AddrPort, error) {
	i := max(0, strings.LastIndexByte(text, ':'))
	return Addr(strings.Trim(text[:i], "[]"), strings.TrimPrefix(text[i:], ":"))
}

// Protocol returns the protocol with a name in IPVS' lists, or zero if Services cannot have it.
func Protocol(name string) sdk.Protocol {
	return map[string]sdk.Protocol{"TCP": sdk.TCP, "UDP": sdk.UDP, "SCTP": sdk.SCTP}[name]
}

// Addr parses an address and a port in hexadecimal digits: "AC1E0029" and "0050". An IPv6 address has colons.
func Addr(addr, port string) (netip.AddrPort, error) {
	raw, err := hex.DecodeString(strings.ReplaceAll(addr, ":", ""))
	if err != nil {
		return netip.AddrPort{}, err
	}
	ip, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", addr)
	}
	n, err := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(ip, uint16(n)), err
}
