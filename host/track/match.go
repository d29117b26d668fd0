// SPDX-License-Identifier: Apache-2.0

package track

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/sdk"
)

// A Match is the frontend that receives packets to one address.
type Match struct {
	Service  sdk.Service // the owner of the frontend; the zero value if there is none
	Frontend sdk.Frontend

	Why     string // why there is no frontend
	Depends bool   // the answer depends on the dataplane's options
}

// Route returns the route of a packet to the frontend, and its reasons: see [reach.Route].
func (m Match) Route(from sdk.Caller, node sdk.Node) (sdk.Route, []reach.Step) {
	return reach.Route(m.Service, m.Frontend, from, node)
}

// Match returns the frontend that receives packets of a protocol to an address on this node.
// isLocal tells which addresses the node has. Match looks up at most two claims, so its cost
// does not depend on the number of Services.
func (t *Tracker) Match(to netip.AddrPort, protocol sdk.Protocol, isLocal func(netip.Addr) bool) Match {
	t.mu.Lock()
	defer t.unlock()
	if m, ok := t.matchClaim(claim{to, protocol}); ok {
		return m
	}
	every := netip.IPv4Unspecified()
	if to.Addr().Is6() {
		every = netip.IPv6Unspecified()
	}
	m, ok := t.matchClaim(claim{netip.AddrPortFrom(every, to.Port()), protocol})
	if !ok {
		return Match{Why: t.explainNoMatch(to, protocol)}
	}
	port := fmt.Sprintf("%d/%s is the node port of %s/%s, and %s", to.Port(), protocol, m.Service.Name.Namespace, m.Service.Name.Service, to.Addr())
	switch {
	case to.Addr().IsLoopback():
		return Match{Depends: true, Why: port + " is a loopback address, which accepts node ports only with the dataplane's option localhostNodePorts"}
	case !isLocal(to.Addr()):
		return Match{Why: port + " is not an address of this node"}
	case !t.node.TakesNodePorts(to.Addr()):
		return Match{Why: port + " is an address of this node that accepts no node ports, because of nodePortAddresses"}
	}
	return m
}

// matchClaim returns the frontend for a claim, with the Service that owns it.
func (t *Tracker) matchClaim(c claim) (Match, bool) {
	for _, h := range t.owners[c] {
		p := h.svc.ports[h.port]
		i := slices.IndexFunc(p.owned, func(f sdk.Frontend) bool { return f.Addr == c.addr })
		if value := t.values[p.name]; i >= 0 && value != nil {
			return Match{Service: *value, Frontend: p.owned[i]}, true
		}
	}
	return Match{}, false
}

// explainNoMatch returns the reason why no frontend matches an address.
func (t *Tracker) explainNoMatch(to netip.AddrPort, protocol sdk.Protocol) string {
	if queue := t.owners[wholeAddress(to.Addr())]; len(queue) > 0 {
		return fmt.Sprintf("%s is an address of %s, which is not reached at port %d/%s", to.Addr(), queue[0].svc.key, to.Port(), protocol)
	}
	for _, r := range t.node.ServiceCIDRs {
		if r.Contains(to.Addr()) {
			return fmt.Sprintf("%s is in %s, the range of cluster IPs, and no Service has it", to.Addr(), r)
		}
	}
	return fmt.Sprintf("no Service is reached at %s/%s", to, protocol)
}
