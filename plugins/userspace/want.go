// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"cmp"
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
)

// A place is where a socket stands.
type place struct {
	protocol sdk.Protocol
	addr     netip.AddrPort
}

func (p place) String() string { return p.protocol.String() + " " + p.addr.String() }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.protocol, q.protocol), p.addr.Compare(q.addr))
}

// A claim is one place that a frontend of a Service wants.
type claim struct {
	place    place
	name     sdk.Name
	frontend *sdk.Frontend // of the Service, never changed; nil where only the place is set

	// listens: a socket is to stand here. Where no endpoint serves there is none, so
	// that the kernel itself turns clients away; the place is claimed all the
	// same, or a node port of another Service could take it.
	listens bool
}

// every reports whether the place is one of those that the frontend's
// unspecified address stands for. Such a claim gives way to one that names the
// address.
func (c claim) every() bool { return c.frontend.Addr.Addr().IsUnspecified() }

// A desired is what one Service comes to: what connections see of it, and the places
// where it is to be reached. Nil: the Service is gone.
type desired struct {
	service *sdk.Service
	claims  []claim

	// age is when it was put first: of two that claim a place in the same way, the one
	// that came later has it. One that is put back has the age that it had.
	age uint64
}

// want is what svc comes to, on a node whose addresses nodePorts take node ports.
func want(svc sdk.Service, nodePorts []netip.Addr) (*desired, error) {
	if err := sound(svc); err != nil {
		return nil, err
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

// sound refuses what no relay here can serve.
func sound(svc sdk.Service) error {
	if err := svc.Check(); err != nil {
		return &sdk.Refusal{Field: "service", Why: err.Error(), Try: "a pointsman-dataplane-userspace as new as the host"}
	}
	if svc.Name.Protocol == sdk.SCTP {
		return &sdk.Refusal{Field: "name.protocol", Why: "the userspace dataplane relays tcp and udp only", Try: "mode: iptables"}
	}
	return nil
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
