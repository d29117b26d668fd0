// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"net/netip"
	"strconv"
	"strings"
)

// A Server names a virtual service of IPVS: by the address that packets are sent to, or by their mark.
type Server struct {
	Protocol string         // "tcp"; not with a mark
	At       netip.AddrPort // not with a mark
	Mark     uint32
}

// String reads "tcp 10.96.0.1:80" or "mark 0x5".
func (s Server) String() string {
	if s.Mark != 0 {
		return "mark 0x" + strconv.FormatUint(uint64(s.Mark), 16)
	}
	return s.Protocol + " " + s.At.String()
}

// A service is a virtual service as the kernel has it.
type service struct {
	Server
	scheduler  string
	persistent bool // a client keeps its destination
	single     bool // persistent: a client is one address
	odd        bool // it has a flag that is not understood here
	dests      []destination
}

// A destination is where a virtual service sends connections.
type destination struct {
	at     netip.AddrPort
	method string // "Masq": the packet is translated
	weight int    // zero: it gets no new connections
}

// services are all virtual services.
type services struct {
	at    map[Server]*service
	marks map[uint32][]*service // one in each IP family
}

func (s services) none() bool { return len(s.at)+len(s.marks) == 0 }

// virtualServices reads what /proc/net/ip_vs prints:
//
//	TCP  0A600001:0050 rr persistent 10800 FFFFFFFF
//	  -> 0A000001:1F90      Masq    1      0          0
//	FWM  00000001 rr
func virtualServices(text string) services {
	s := services{make(map[Server]*service), make(map[uint32][]*service)}
	var last *service
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) < 3:
		case words[0] == "->":
			if d, ok := destinationIn(words); ok && last != nil {
				last.dests = append(last.dests, d)
			}
		default:
			last = s.add(words)
		}
	}
	return s
}

// add enters the virtual service that a line begins; nil: it is another line.
func (s services) add(words []string) *service {
	v := &service{Server: Server{Protocol: strings.ToLower(words[0])}, scheduler: words[2]}
	v.flags(words[3:])
	switch v.Protocol {
	case "fwm":
		mark, err := strconv.ParseUint(words[1], 16, 32)
		if err != nil {
			return nil
		}
		v.Server = Server{Mark: uint32(mark)}
		s.marks[v.Mark] = append(s.marks[v.Mark], v)
	case "tcp", "udp", "sctp":
		at, ok := serverAt(words[1])
		if !ok {
			return nil
		}
		v.At = at
		s.at[v.Server] = v
	default:
		return nil
	}
	return v
}

func (v *service) flags(words []string) {
	for i := 0; i < len(words); i++ {
		if words[i] == "persistent" && i+2 < len(words) {
			mask := words[i+2] // of IPv6 it is how many bits, in the order of the network
			v.persistent, v.single = true, mask == "FFFFFFFF" || mask == "80000000"
			i += 2
			continue
		}
		v.odd = true
	}
}

func destinationIn(words []string) (d destination, ok bool) {
	if len(words) < 4 {
		return d, false
	}
	weight, err := strconv.Atoi(words[3])
	at, ok := serverAt(words[1])
	return destination{at, words[2], weight}, ok && err == nil
}

// of are the virtual services of a mark in the IP family of an address. Of one without destinations the
// family is not known, unless the other's has some: it may be either's.
func (s services) of(mark uint32, addr netip.Addr) (its *service, sure bool) {
	var empty, other *service
	for _, v := range s.marks[mark] {
		switch {
		case len(v.dests) == 0:
			empty = v
		case v.dests[0].at.Addr().Is4() == addr.Is4():
			return v, true
		default:
			other = v
		}
	}
	return empty, empty == nil || other != nil || len(s.marks[mark]) > 1
}

// template is where the kernel keeps a client, by a line of its list of connections: one without a
// port of the client's. Of a virtual service of a mark it has the mark where others have their address.
//
//	Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires
//	TCP 0AB40009 0000 AC1E0029 0050 0AB40101 1F90 NONE           10780
func template(line string, of *service, client netip.Addr) (netip.AddrPort, bool) {
	words := strings.Fields(line)
	if len(words) < 9 || words[2] != "0000" {
		return netip.AddrPort{}, false
	}
	from, ok1 := serverAt(words[1] + ":" + words[2])
	dest, ok2 := serverAt(words[5] + ":" + words[6])
	if !ok1 || !ok2 || from.Addr() != client {
		return netip.AddrPort{}, false
	}
	if of.Mark != 0 {
		return dest, words[0] == "IP" && marked(words[3], of.Mark, client.Is4())
	}
	at, ok := serverAt(words[3] + ":" + words[4])
	return dest, ok && at == of.At && strings.ToLower(words[0]) == of.Protocol
}

// marked reports whether an address is how a template has a mark: in its first four bytes.
func marked(word string, mark uint32, v4 bool) bool {
	at, ok := serverAt(word + ":0000")
	if !ok || at.Addr().Is4() != v4 {
		return false
	}
	raw := at.Addr().AsSlice()
	first := uint32(raw[0])<<24 | uint32(raw[1])<<16 | uint32(raw[2])<<8 | uint32(raw[3])
	for _, b := range raw[4:] {
		if b != 0 {
			return false
		}
	}
	return first == mark
}
