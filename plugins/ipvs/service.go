// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// A serviceKey identifies a virtual server by its address or by the mark of its packets.
type serviceKey struct {
	family   sdk.Family
	protocol sdk.Protocol   // unset with a mark
	addr     netip.AddrPort // unset with a mark
	mark     uint32
}

func (s serviceKey) String() string {
	if s.mark != 0 {
		return fmt.Sprintf("mark %#x %s", s.mark, s.family)
	}
	return fmt.Sprintf("%s %s", s.protocol, s.addr)
}

func compareServices(a, b serviceKey) int {
	return cmp.Or(
		cmp.Compare(a.family, b.family),
		a.addr.Compare(b.addr),
		cmp.Compare(a.protocol, b.protocol),
		cmp.Compare(a.mark, b.mark),
	)
}

// scheduling says how a virtual server chooses a destination.
type scheduling struct {
	scheduler string
	affinity  uint32 // affinity timeout in seconds; zero: none
}

func (h scheduling) String() string {
	if h.affinity > 0 {
		return fmt.Sprintf("%s, sticky for %ds", h.scheduler, h.affinity)
	}
	return h.scheduler
}

// A state is the state of a virtual server, present or desired.
type state struct {
	scheduling
	flags   uint32 // as the kernel shows them
	serving dests  // of weight 1
	idle    dests  // of weight 0: they get no new connection and keep those they have
	odd     dests  // of any other weight, which only another program sets
}

// newState returns the state of a virtual server with these destinations.
func newState(h scheduling, flags uint32, loads map[netip.AddrPort]load) state {
	var by [3][]netip.AddrPort // by weight
	for dest, l := range loads {
		w := min(max(l.Weight, 0), 2)
		by[w] = append(by[w], dest)
	}
	for _, list := range by {
		slices.SortFunc(list, netip.AddrPort.Compare)
	}
	return state{scheduling: h, flags: flags, idle: newDests(by[0]), serving: newDests(by[1]), odd: newDests(by[2])}
}

// weights returns the destinations with their weights. 2 stands for every weight in odd.
func (v state) weights() map[netip.AddrPort]int {
	all := make(map[netip.AddrPort]int)
	for weight, some := range []dests{v.idle, v.serving, v.odd} {
		for _, dest := range some.list() {
			all[dest] = weight
		}
	}
	return all
}

// dests is a sorted list of destinations, encoded in a string so that states are comparable and need little
// memory. The first byte is the length of an address. Addresses and ports follow.
type dests string

func newDests(all []netip.AddrPort) dests {
	if len(all) == 0 {
		return ""
	}
	b := []byte{byte(all[0].Addr().BitLen() / 8)}
	for _, dest := range all {
		b = append(b, dest.Addr().AsSlice()...)
		b = binary.BigEndian.AppendUint16(b, dest.Port())
	}
	return dests(b)
}

func (d dests) list() []netip.AddrPort {
	if d == "" {
		return nil
	}
	n := int(d[0])
	all := make([]netip.AddrPort, 0, len(d)/(n+2))
	for rest := []byte(d[1:]); len(rest) > 0; rest = rest[n+2:] {
		addr, _ := netip.AddrFromSlice(rest[:n])
		all = append(all, netip.AddrPortFrom(addr, binary.BigEndian.Uint16(rest[n:])))
	}
	return all
}

// without returns the destinations that are not in others.
func (d dests) without(others dests) []netip.AddrPort {
	if d == "" || d == others {
		return nil
	}
	list := others.list()
	return slices.DeleteFunc(d.list(), func(dest netip.AddrPort) bool { return contains(list, dest) })
}

// contains reports whether a sorted list has a destination.
func contains(list []netip.AddrPort, dest netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(list, dest, netip.AddrPort.Compare)
	return found
}

// schedulers are the schedulers of the kernel. A node's kernel may not be able to load all of them.
var schedulers = []string{"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "sed", "nq", "mh"}

// Flags of a virtual server, as in include/uapi/linux/ip_vs.h.
const (
	flagPersistent = 0x1
	flagHashed     = 0x2  // set by the kernel itself
	flagFallback   = 0x8  // sh, mh: go on to another destination when the one found has weight 0
	flagPort       = 0x10 // sh, mh: look at the client's port too
)

// flags returns the flags of a virtual server. The hashing schedulers sh and mh refuse clients whose
// destination has weight 0, that is drains, unless they have flagFallback.
func (h scheduling) flags() uint32 {
	var flags uint32
	if h.affinity > 0 {
		flags |= flagPersistent
	}
	switch h.scheduler {
	case "sh":
		flags |= flagFallback
	case "mh":
		flags |= flagFallback | flagPort
	}
	return flags
}

// drains reports whether a destination of weight 0 may stay in a virtual server. dh has no fallback and would
// refuse the clients of such a destination.
func (h scheduling) drains() bool { return h.scheduler != "dh" }

// Marks of virtual servers begin with a tag, so that rules can tell them from other marks. A mark must not
// contain the masquerade bit. That bit is in at most one of the two tags, so the other one can be used.
const tagMask, tagOne, tagOther = 0xff000000, 0x6e000000, 0x91000000

func (n nodeConfig) tag() uint32 {
	if tagOne&n.masquerade() != 0 {
		return tagOther
	}
	return tagOne
}

func (n nodeConfig) masquerade() uint32 { return 1 << (n.node.MasqueradeBit & 31) }

// canKeep reports whether a Service can keep a mark after the node's configuration changed to n.
func (n nodeConfig) canKeep(mark uint32) bool {
	return mark != 0 && mark&tagMask == n.tag() && mark&n.masquerade() == 0
}

// nextMark returns a mark that no Service has. *last is the last one returned, without its tag. A process never
// reuses a mark: it does not live long enough for the counter to wrap.
func (n nodeConfig) nextMark(last *uint32) uint32 {
	for {
		*last = (*last + 1) &^ tagMask
		if mark := n.tag() | *last; *last != 0 && n.canKeep(mark) {
			return mark
		}
	}
}
