// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// A place is where a socket listens.
type place struct {
	protocol sdk.Protocol
	addr     netip.AddrPort
}

func (p place) String() string { return p.protocol.String() + " " + p.addr.String() }

// A claim is a place where a frontend of a Service is served.
type claim struct {
	place    place
	name     sdk.Name
	frontend *sdk.Frontend // of the Service, immutable

	// listens says that the place needs a socket. It has none if the Service has no endpoint, so that the kernel
	// refuses clients. The claim prevents that the node port of another Service gets the place.
	listens bool
}

// every reports whether the frontend has the unspecified address, that is, a node port. Its claim gives way to that of a
// frontend with the address of the place.
func (c *claim) every() bool { return c.frontend.Addr.Addr().IsUnspecified() }

// key returns the key of a claim in the reconciler.
func (c *claim) key() claimKey { return claimKey{place: c.place, every: c.every()} }

// A desired is the piece of one Service: its value for connections, and its claims. It is nil if there is no Service.
type desired struct {
	service *sdk.Service
	claims  []claim
}

// Equal implements reconcile.Piece.
func (d *desired) Equal(e *desired) bool {
	if d == nil || e == nil || d == e {
		return d == e
	}
	return d.service.Equal(*e.service) && slices.EqualFunc(d.claims, e.claims, func(a, b claim) bool { return a.key() == b.key() })
}

// want returns the piece of a Service on a node whose addresses nodePorts take node ports.
func want(svc sdk.Service, nodePorts []netip.Addr) (*desired, error) {
	switch err := svc.Check(); {
	case err != nil:
		return nil, &sdk.Refusal{Field: "service", Why: err.Error(), Try: "a pointsman-dataplane-userspace as new as the host"}
	case svc.Name.Protocol == sdk.SCTP:
		return nil, &sdk.Refusal{Field: "name.protocol", Why: "the userspace dataplane relays tcp and udp only", Try: "mode: iptables"}
	}
	d := &desired{service: &svc}
	for i := range svc.Frontends {
		f := &svc.Frontends[i]
		for _, at := range places(*f, nodePorts) {
			d.claims = append(d.claims, claim{
				place:    place{svc.Name.Protocol, at},
				name:     svc.Name,
				frontend: f,
				listens:  len(svc.Cluster) > 0,
			})
		}
	}
	return d, nil
}

// places returns where sockets listen for f: at its address, or for a node port at the addresses of nodePorts of its
// family. A socket at the unspecified address would also accept connections to other addresses.
func places(f sdk.Frontend, nodePorts []netip.Addr) []netip.AddrPort {
	if !f.Addr.Addr().IsUnspecified() {
		return []netip.AddrPort{f.Addr}
	}
	var all []netip.AddrPort
	for _, addr := range nodePorts {
		if addr.Is4() == f.Addr.Addr().Is4() {
			all = append(all, netip.AddrPortFrom(addr, f.Addr.Port()))
		}
	}
	return all
}
