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
