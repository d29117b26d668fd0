// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/trace"
	"github.com/pointsman/pointsman/sdk"
)

// dimensions are what an entry of a set has, by the kind of the set, for those whose entries can be looked up.
var dimensions = map[string][]string{
	"hash:ip": {"ip"}, "hash:net": {"ip"}, "bitmap:ip": {"ip"}, "bitmap:port": {"port"},
	"hash:ip,port": {"ip", "port"}, "hash:net,port": {"ip", "port"}, "hash:net,net": {"ip", "ip"},
	"hash:ip,port,ip": {"ip", "port", "ip"}, "hash:ip,port,net": {"ip", "port", "ip"}, "hash:net,port,net": {"ip", "port", "ip"},
}

// listOfSets is the kind of a set that has other sets as its entries.
const listOfSets = "list:set"

// A header is what the kernel says of a set as a whole.
type header struct {
	kind   string     // "hash:ip"
	family sdk.Family // of its addresses; zero: it has none
}

// A keeper is what keeps sets: the kernel.
type keeper struct {
	header  func(set string) (header, error)
	members func(set string) ([]string, error)       // the sets in a list of sets
	has     func(set string, l lookup) (bool, error) // whether a set has an entry
}

// A lookup is what a set is asked for: as many of these as its kind has.
type lookup struct {
	addr, second netip.Addr
	protocol     string
	port         uint16
	hasPort      bool
}

// member reports whether a set has the parts of a packet that a rule names. A list of sets has what one of
// its sets has. An error says why that cannot be told.
func (k keeper) member(set, parts string, p trace.Packet) (bool, error) {
	h, err := k.header(set)
	if err != nil {
		return false, fmt.Errorf("ask for the set %s: %w", set, err)
	}
	if h.kind == listOfSets {
		return k.inOne(set, parts, p)
	}
	l, may, err := h.lookedUp(set, parts, p)
	if !may || err != nil {
		return false, err
	}
	has, err := k.has(set, l)
	if err != nil {
		return false, fmt.Errorf("ask whether the set %s has %+v: %w", set, l, err)
	}
	return has, nil
}

// inOne reports whether a set of a list has the parts of a packet.
func (k keeper) inOne(list, parts string, p trace.Packet) (bool, error) {
	sets, err := k.members(list)
	if err != nil {
		return false, fmt.Errorf("list the set %s: %w", list, err)
	}
	var unclear error
	for _, set := range sets {
		has, err := k.member(set, parts, p)
		if has {
			return true, nil
		}
		if err != nil {
			unclear = fmt.Errorf("in the set %s: %w", list, err)
		}
	}
	return false, unclear
}

// lookedUp are the parts of a packet, each src or dst, that a rule has a set looked up by. The kernel finds
// nothing in a set by fewer parts than its entries have, nor by an address of the other IP family.
func (h header) lookedUp(set, parts string, p trace.Packet) (l lookup, may bool, err error) {
	own, known := dimensions[h.kind]
	words := strings.Split(parts, ",")
	switch {
	case !known:
		return l, false, fmt.Errorf("the tracer does not look up anything in the set %s, which is of %s", set, h.kind)
	case len(words) < len(own) || h.family != 0 && h.family != sdk.FamilyOf(p.To.Addr()):
		return l, false, nil
	case h.kind == "bitmap:port" && p.Protocol != "tcp" && p.Protocol != "udp":
		return l, false, nil
	}
	for i, dimension := range own {
		at := p.To
		switch words[i] {
		case "src":
			at = p.From
		case "dst":
		default:
			return l, false, fmt.Errorf("the tracer does not look up %s in the set %s", parts, set)
		}
		switch {
		case dimension == "port" && at.Port() == 0:
			return l, false, errors.New("it asks for the caller's port, which is not known")
		case dimension == "port":
			l.port, l.hasPort, l.protocol = at.Port(), true, p.Protocol
		case i == 0:
			l.addr = at.Addr()
		default:
			l.second = at.Addr()
		}
	}
	if h.kind == "bitmap:port" {
		l.protocol = "" // it has none
	}
	return l, true, nil
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
