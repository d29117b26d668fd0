// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// A place is where a socket stands.
type place struct {
	protocol sdk.Protocol
	addr     netip.AddrPort
}

func (p place) String() string { return p.protocol.String() + " " + p.addr.String() }

// A claim is one place that a frontend of a Service wants.
type claim struct {
	place    place
	name     sdk.Name
	frontend *sdk.Frontend // of the Service, never changed

	// listens: a socket is to stand here. Where no endpoint serves there is none, so
	// that the kernel itself turns clients away; the place is claimed all the
	// same, or a node port of another Service could take it.
	listens bool
}

// every reports whether the place is one of those that the frontend's
// unspecified address stands for. Such a claim gives way to one that names the
// address.
func (c *claim) every() bool { return c.frontend.Addr.Addr().IsUnspecified() }

// spot is the key of the claim's entry.
func (c *claim) spot() spot {
	return spot{what: ofClaim, place: c.place, every: c.every(), listens: c.listens}
}

// A desired is what one Service comes to: what connections see of it, and the places
// where it is to be reached. Nil: the Service is gone.
type desired struct {
	service *sdk.Service
	claims  []claim
}

// Equal reports whether both are the same.
func (d *desired) Equal(e *desired) bool {
	if d == nil || e == nil || d == e {
		return d == e
	}
	return d.service.Equal(*e.service) && slices.EqualFunc(d.claims, e.claims, func(a, b claim) bool { return a.spot() == b.spot() })
}

// want is what svc comes to, on a node whose addresses nodePorts take node ports.
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

// places are the addresses that f is listened at: its own, or in place of an
// unspecified one those of its family that take node ports. Never the
// unspecified one itself, which would also catch what is sent to others.
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
