// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// A serviceKey names a virtual service: by the address that packets are sent to, or by
// the mark that they have.
type serviceKey struct {
	family   sdk.Family
	protocol sdk.Protocol   // not with a mark
	addr     netip.AddrPort // not with a mark
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

// scheduling is the way in which a virtual service chooses.
type scheduling struct {
	scheduler string
	affinity  uint32 // seconds that a client keeps its destination; zero: it does not
}

func (h scheduling) String() string {
	if h.affinity > 0 {
		return fmt.Sprintf("%s, sticky for %ds", h.scheduler, h.affinity)
	}
	return h.scheduler
}

// An observed virtual service is as the kernel has it: each destination with its weight. A
// real of weight 0 gets no new connection and keeps those it has.
type observed struct {
	scheduling scheduling
	flags      uint32 // as the kernel shows them; what is read and does not fit how is set again
	dests      map[netip.AddrPort]int
}

// serving are the destinations that new connections go to, in order.
func (v observed) serving() []netip.AddrPort {
	return slices.SortedFunc(func(yield func(netip.AddrPort) bool) {
		for dest := range maps.Keys(v.dests) {
			if v.dests[dest] > 0 && !yield(dest) {
				return
			}
		}
	}, netip.AddrPort.Compare)
}

// The schedulers that the kernel has. Which of them it can load is another question.
var schedulers = []string{"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "sed", "nq", "mh"}

// Flags of a virtual service, as the kernel names them.
const (
	flagPersistent = 0x1
	flagHashed     = 0x2  // set by the kernel itself
	flagFallback   = 0x8  // sh, mh: go on to another destination when the one found has weight 0
	flagPort       = 0x10 // sh, mh: look at the client's port too
)

// flags are those that the kernel is given. A scheduler that hashes would refuse the
// clients of a destination that is being drained, so it goes on to another.
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

// drains reports whether a destination of weight 0 may stay in a virtual service. dh would
// go on refusing the clients that it had sent there.
func (h scheduling) drains() bool { return h.scheduler != "dh" }

// Marks of virtual services begin with a tag, so that a rule can tell them from other
// marks. There are two tags: the bit that means "masquerade this" is in one of them
// at most, and a mark must not have it.
const tagMask, tagOne, tagOther = 0xff000000, 0x6e000000, 0x91000000

func (n nodeConfig) tag() uint32 {
	if tagOne&n.masquerade() != 0 {
		return tagOther
	}
	return tagOne
}

func (n nodeConfig) masquerade() uint32 { return 1 << (n.node.MasqueradeBit & 31) }

// marks are the marks that Services have. One whose Service needs it no more is free only
// when the kernel has no virtual service of it: a Service that is rendered anew, because the
// process is another one, keeps the mark that its connections have.
type marks struct {
	of       map[sdk.Name]uint32
	owner    map[uint32]sdk.Name
	unneeded map[sdk.Name]bool
	next     uint32
}

func newMarks() marks {
	return marks{of: make(map[sdk.Name]uint32), owner: make(map[uint32]sdk.Name), unneeded: make(map[sdk.Name]bool)}
}

// take is the mark of name, a new one if it has none.
func (m *marks) take(name sdk.Name, n nodeConfig) uint32 {
	if mark, ok := m.of[name]; ok && mark&tagMask == n.tag() && mark&n.masquerade() == 0 {
		return mark
	}
	for {
		m.next = (m.next + 1) &^ tagMask
		mark := n.tag() | m.next
		if _, taken := m.owner[mark]; !taken && m.next != 0 && mark&n.masquerade() == 0 {
			m.keep(name, mark)
			return mark
		}
	}
}

// keep notes that name has mark.
func (m *marks) keep(name sdk.Name, mark uint32) {
	m.release(name)
	m.of[name], m.owner[mark] = mark, name
}

// leave notes that the Service called name needs its mark no more.
func (m *marks) leave(name sdk.Name) {
	if _, has := m.of[name]; has {
		m.unneeded[name] = true
	}
}

// settle frees the marks that are not needed, once the kernel has what it should.
func (m *marks) settle(needed map[sdk.Name]desired) {
	for name := range m.unneeded {
		if needed[name].mark == 0 {
			m.release(name)
		}
	}
	clear(m.unneeded)
}

func (m *marks) release(name sdk.Name) {
	if mark, ok := m.of[name]; ok {
		delete(m.owner, mark)
		delete(m.of, name)
	}
}
