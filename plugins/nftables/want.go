// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// A piece has what one Service needs in the table. The zero value needs nothing.
type piece struct {
	frontends []frontend
	served    bool // the Service has at least one endpoint, whichever clients may use it
	affinity  time.Duration
	number    number // with affinity: the Service's number, set by withSlotsOf

	// lists has the endpoints for each policy that some client is subject to. The index of an endpoint is its
	// slot.
	lists   lists
	hairpin []netip.Addr // endpoints that may send packets to their own Service
}

// lists are endpoint lists by policy. An array, because a map would use most of the memory of a piece.
type lists [sdk.Local + 1][]netip.AddrPort

// A frontend is an address of a Service, with the source ranges that may use it. Without sources every client
// may.
type frontend struct {
	kind    sdk.Kind
	addr    netip.AddrPort
	policy  sdk.Policy
	sources []span
}

func (f frontend) isExternal() bool { return f.kind != sdk.ClusterIP }

// want returns the piece of svc. It is pure.
func want(svc sdk.Service) (piece, error) {
	const try = "several Services, or a trafficDistribution that keeps traffic near"
	if err := frame.TooMany(svc, Ceiling, try); err != nil {
		return piece{}, err
	}
	w := piece{served: len(svc.Cluster) > 0, affinity: svc.Affinity.Round(time.Second)}
	for _, f := range svc.Frontends {
		if text := iptables.LabelFrontend(svc.Name, f.Kind, f.Policy); len(text) > maxCommentLen {
			why := fmt.Sprintf("%q is longer than a comment in the kernel", text)
			return piece{}, &sdk.Refusal{Field: "name", Why: why}
		}
		w.frontends = append(w.frontends, frontend{f.Kind, f.Addr, f.Policy, spans(f.Sources)})
		w.addList(svc, f.Policy)
		if f.External() {
			w.addList(svc, sdk.Cluster) // pods and the node use all endpoints, whatever the policy
		}
	}
	w.normalize()
	return w, nil
}

// normalize sorts frontends and hairpin addresses.
func (w *piece) normalize() {
	slices.SortFunc(w.frontends, func(a, b frontend) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), a.addr.Compare(b.addr))
	})
	slices.SortFunc(w.hairpin, netip.Addr.Compare)
	w.hairpin = slices.Compact(w.hairpin)
}

// Empty reports whether w needs nothing.
func (w piece) Empty() bool { return len(w.frontends) == 0 }

// Equal reports whether w and v have the same elements.
func (w piece) Equal(v piece) bool {
	return w.served == v.served && w.affinity == v.affinity && w.number == v.number && slices.Equal(w.hairpin, v.hairpin) &&
		slices.EqualFunc(w.lists[:], v.lists[:], slices.Equal[[]netip.AddrPort]) &&
		slices.EqualFunc(w.frontends, v.frontends, func(a, b frontend) bool {
			return a.kind == b.kind && a.addr == b.addr && a.policy == b.policy && slices.Equal(a.sources, b.sources)
		})
}

// addList adds the endpoint list for policy p.
func (w *piece) addList(svc sdk.Service, p sdk.Policy) {
	if len(w.lists[p]) > 0 || len(svc.Endpoints(p)) == 0 {
		return
	}
	list := make([]netip.AddrPort, len(svc.Endpoints(p)))
	for i, ep := range svc.Endpoints(p) {
		list[i] = ep.Addr
		if svc.MayCallItself(ep) {
			w.hairpin = append(w.hairpin, ep.Addr.Addr())
		}
	}
	w.lists[p] = list
}

// withSlotsOf returns w with its endpoints in the slots that they have in have. Endpoints in slots beyond the
// end of the list, and new ones, fill the gaps, so that few elements change. A Service with affinity keeps the
// number of have, or gets a free one.
func (w piece) withSlotsOf(have piece, free func() number) piece {
	switch {
	case w.affinity <= 0:
		w.number = 0
	case have.number > 0:
		w.number = have.number
	default:
		w.number = free()
	}
	for p, list := range w.lists {
		w.lists[p] = assignSlots(have.lists[p], list)
	}
	return w
}

// maxCommentLen is the longest comment of an element: the kernel stores its length, with the terminating zero,
// in one byte.
const maxCommentLen = 250
