// SPDX-License-Identifier: Apache-2.0

// Package ipvslist reads what the kernel prints of IPVS below /proc/net, for the mode that writes virtual servers and for the walk of a
// packet through the node. By netlink the kernel lists the destinations of one virtual server only, which takes seconds where
// there are many.
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

// A Server is a virtual server: at an address, or of a mark.
type Server struct {
	Protocol  sdk.Protocol   // not of a mark
	Addr      netip.AddrPort // not of a mark; its port is 0 for all ports
	Mark      uint32
	Scheduler string
	Dests     map[netip.AddrPort]Load
}

// A Load is what a destination has to do.
type Load struct{ Weight, Active, Inactive int }

// Family is that of the addresses. A virtual server of a mark that has no destinations shows none.
func (s Server) Family() sdk.Family {
	for dest := range s.Dests {
		return sdk.FamilyOf(dest.Addr())
	}
	if s.Mark != 0 {
		return 0
	}
	return sdk.FamilyOf(s.Addr.Addr())
}

// Read reads /proc/net/ip_vs, and passes over virtual servers of other protocols:
//
//	TCP  AC1E0029:0050 rr persistent 10800 FFFFFFFF
//	  -> 0AB40001:1F90      Masq    1      0          0
//	FWM  6E000001 rr
func Read(r io.Reader) (all []Server, err error) {
	known := false // the last server is one that is listed
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

// addDest adds a destination by the words of its line: an arrow, its address, how packets get there, its
// weight, its connections, and those that are over.
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

// pair reads an address and a port that stand together: "AC1E0029:0050", or
// "[fd00:0172:0030:0000:0000:0000:0000:0041]:0050".
func pair(text string) (netip.AddrPort, error) {
	i := max(0, strings.LastIndexByte(text, ':'))
	return Addr(strings.Trim(text[:i], "[]"), strings.TrimPrefix(text[i:], ":"))
}

// Protocol is what the kernel calls so, if a Service can have it.
func Protocol(name string) sdk.Protocol {
	return map[string]sdk.Protocol{"TCP": sdk.TCP, "UDP": sdk.UDP, "SCTP": sdk.SCTP}[name]
}

// Addr reads an address and a port, in hexadecimal digits: "AC1E0029" and "0050". An address of IPv6 has its colons.
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
