// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/trace"
)

// dimensions are what an entry of a set has, by the kind of the set, for those whose entries can be looked up.
var dimensions = map[string][]string{
	"hash:ip": {"ip"}, "hash:net": {"ip"}, "bitmap:ip": {"ip"}, "bitmap:port": {"port"},
	"hash:ip,port": {"ip", "port"}, "hash:net,port": {"ip", "port"},
	"hash:ip,port,ip": {"ip", "port", "ip"}, "hash:ip,port,net": {"ip", "port", "ip"},
}

// A lookup is what a set is asked for: as many of these as its kind has.
type lookup struct {
	addr, second netip.Addr
	protocol     string
	port         uint16
	hasPort      bool
}

// lookedUp are the parts of a packet, each src or dst, that a rule has a set of some kind looked up by.
func lookedUp(set, kind, parts string, p trace.Packet) (l lookup, err error) {
	own, known := dimensions[kind]
	if !known {
		return l, fmt.Errorf("the tracer does not look up anything in the set %s, which is of %s", set, kind)
	}
	words := strings.Split(parts, ",")
	if len(words) < len(own) {
		return l, fmt.Errorf("the tracer does not look up %s in the set %s, which is of %s", parts, set, kind)
	}
	for i, dimension := range own {
		at := p.To
		switch words[i] {
		case "src":
			at = p.From
		case "dst":
		default:
			return l, fmt.Errorf("the tracer does not look up %s in the set %s", parts, set)
		}
		switch {
		case dimension == "port" && at.Port() == 0:
			return l, errors.New("it asks for the caller's port, which is not known")
		case dimension == "port":
			l.port, l.hasPort, l.protocol = at.Port(), true, p.Protocol
		case i == 0:
			l.addr = at.Addr()
		default:
			l.second = at.Addr()
		}
	}
	if kind == "bitmap:port" {
		l.protocol = "" // it has none
	}
	return l, nil
}

// markIn is the mark beside an entry, by what ipset prints of its set, and which bits of it count:
//
//	add KUBE-NEAR 192.0.2.10,tcp:30080 comment "ns1/web:http" skbmark 0x6e000001
func markIn(list string, l lookup) (bits [2]uint32, in bool) {
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "add" || !l.is(words[2]) {
			continue
		}
		before, after, quoted := strings.Cut(line, ` comment "`)
		if quoted {
			_, after, _ = strings.Cut(after, `"`)
		}
		_, mark, has := strings.Cut(before+" "+after, " skbmark ")
		if !has {
			return bits, true // without one, the packet keeps its own
		}
		word, _, _ := strings.Cut(strings.TrimSpace(mark), " ")
		value, mask, masked := strings.Cut(word, "/")
		v, _ := strconv.ParseUint(value, 0, 32)
		m := uint64(0xffffffff)
		if masked {
			m, _ = strconv.ParseUint(mask, 0, 32)
		}
		return [2]uint32{uint32(v), uint32(m)}, true
	}
	return bits, false
}

// is reports whether an entry is the address, the protocol and the port that are looked up.
func (l lookup) is(entry string) bool {
	addr, rest, _ := strings.Cut(entry, ",")
	a, err := netip.ParseAddr(addr)
	return err == nil && a == l.addr && rest == l.protocol+":"+strconv.Itoa(int(l.port))
}
