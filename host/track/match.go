// SPDX-License-Identifier: Apache-2.0

package track

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/sdk"
)

// A Match is the frontend that packets to one address come to.
type Match struct {
	Service  sdk.Service // whose it is; the zero value: there is no such frontend
	Frontend sdk.Frontend

	Why     string // there is none
	Depends bool   // it is the dataplane that decides whether there is one
}

// Route is as [reach.Route] says of a packet that comes to the frontend.
func (m Match) Route(from sdk.Caller, node sdk.Node) (sdk.Route, []reach.Step) {
	return reach.Route(m.Service, m.Frontend, from, node)
}

// Match returns the frontend that packets of a protocol to an address come to on this node. own
// says which addresses the node has. It asks for the owner of two claims, however many Services
// there are.
func (t *Tracker) Match(to netip.AddrPort, protocol sdk.Protocol, own func(netip.Addr) bool) Match {
	t.mu.Lock()
	defer t.unlock()
	if m, ok := t.matches(claim{to, protocol}); ok {
		return m
	}
	every := netip.IPv4Unspecified()
	if to.Addr().Is6() {
		every = netip.IPv6Unspecified()
	}
	m, ok := t.matches(claim{netip.AddrPortFrom(every, to.Port()), protocol})
	if !ok {
		return Match{Why: t.unmatched(to, protocol)}
	}
	port := fmt.Sprintf("%d/%s is the node port of %s/%s, and %s", to.Port(), protocol, m.Service.Name.Namespace, m.Service.Name.Service, to.Addr())
	switch {
	case to.Addr().IsLoopback():
		return Match{Depends: true, Why: port + " is a loopback address, which takes node ports where the dataplane's option localhostNodePorts says so"}
	case !own(to.Addr()):
		return Match{Why: port + " is no address of this node"}
	case !t.node.TakesNodePorts(to.Addr()):
		return Match{Why: port + " is an address of this node that takes none, as nodePortAddresses has it"}
	}
	return m
}

// matches returns the frontend that is the claim's, as its owner serves it.
func (t *Tracker) matches(c claim) (Match, bool) {
	for _, h := range t.owners.queues[c] {
		p := h.svc.ports[h.port]
		i := slices.IndexFunc(p.owned, func(f sdk.Frontend) bool { return f.Addr == c.addr })
		if value := t.values[p.name]; i >= 0 && value != nil {
			return Match{Service: *value, Frontend: p.owned[i]}, true
		}
	}
	return Match{}, false
}

// unmatched says why no Service is reached at an address.
func (t *Tracker) unmatched(to netip.AddrPort, protocol sdk.Protocol) string {
	if s := t.owners.addresses[to.Addr()]; s != nil {
		of := slices.Concat(s.cluster, s.others())
		return fmt.Sprintf("%s is an address of %s, which is not reached at port %d/%s", to.Addr(), of[0].key, to.Port(), protocol)
	}
	for _, r := range t.node.ServiceCIDRs {
		if r.Contains(to.Addr()) {
			return fmt.Sprintf("%s is in %s, the range of cluster IPs, and no Service has it", to.Addr(), r)
		}
	}
	return fmt.Sprintf("no Service is reached at %s/%s", to, protocol)
}
