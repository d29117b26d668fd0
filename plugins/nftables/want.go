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

// A wanted is what one Service comes to. The zero value is nothing.
type wanted struct {
	frontends []frontend
	served    bool // some endpoint serves, whichever callers may use it
	affinity  time.Duration
	number    number // with affinity: chosen when it is planned

	// lists are the endpoints of the policies that some caller is sent by; those of the other
	// are none. The place of one is its slot.
	lists   lists
	hairpin []netip.Addr // endpoints that may call themselves
}

// lists are those of endpoints, by policy. A map would be most of what a Service takes.
type lists [sdk.Local + 1][]netip.AddrPort

// A frontend is one with the ranges of sources that may use it; none: all may.
type frontend struct {
	kind    sdk.Kind
	addr    netip.AddrPort
	policy  sdk.Policy
	sources []span
}

func (f frontend) external() bool { return f.kind != sdk.ClusterIP }

// want is what svc comes to. It is pure.
func want(svc sdk.Service) (wanted, error) {
	const try = "several Services, or a trafficDistribution that keeps traffic near"
	if err := frame.TooMany(svc, Ceiling, try); err != nil {
		return wanted{}, err
	}
	w := wanted{served: len(svc.Cluster) > 0, affinity: svc.Affinity.Round(time.Second)}
	for _, f := range svc.Frontends {
		if text := iptables.LabelFrontend(svc.Name, f.Kind, f.Policy); len(text) > longestComment {
			why := fmt.Sprintf("%q is longer than a comment in the kernel", text)
			return wanted{}, &sdk.Refusal{Field: "name", Why: why}
		}
		w.frontends = append(w.frontends, frontend{f.Kind, f.Addr, f.Policy, spans(f.Sources)})
		w.use(svc, f.Policy)
		if f.External() {
			w.use(svc, sdk.Cluster) // pods and the node use all endpoints, whatever the policy
		}
	}
	w.normalize()
	return w, nil
}

// normalize puts frontends, and the endpoints that may call themselves, in order.
func (w *wanted) normalize() {
	slices.SortFunc(w.frontends, func(a, b frontend) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), a.addr.Compare(b.addr))
	})
	slices.SortFunc(w.hairpin, netip.Addr.Compare)
	w.hairpin = slices.Compact(w.hairpin)
}

// Empty reports whether w is nothing.
func (w wanted) Empty() bool { return len(w.frontends) == 0 }

// Equal reports whether w and v have the same elements.
func (w wanted) Equal(v wanted) bool {
	return w.served == v.served && w.affinity == v.affinity && w.number == v.number && slices.Equal(w.hairpin, v.hairpin) &&
		slices.EqualFunc(w.lists[:], v.lists[:], slices.Equal[[]netip.AddrPort]) &&
		slices.EqualFunc(w.frontends, v.frontends, func(a, b frontend) bool {
			return a.kind == b.kind && a.addr == b.addr && a.policy == b.policy && slices.Equal(a.sources, b.sources)
		})
}

// use has w have the list for a policy.
func (w *wanted) use(svc sdk.Service, p sdk.Policy) {
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

// arranged is w with its endpoints in the slots that they have in have, as far as that goes:
// those in slots beyond the end, and new ones, fill the gaps. So few elements change. With
// affinity it has the number of have, or else a free one.
func (w wanted) arranged(have wanted, free func() number) wanted {
	switch {
	case w.affinity <= 0:
		w.number = 0
	case have.number > 0:
		w.number = have.number
	default:
		w.number = free()
	}
	for p, list := range w.lists {
		w.lists[p] = arrange(have.lists[p], list)
	}
	return w
}

// longestComment is how long one may be: its length, with the zero at its end, is one byte.
const longestComment = 250
