// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// Forget ends the kernel's UDP flows to these Services that lead nowhere. One that leads to
// this node is the relay's, and stays, unless the socket that it led to was another: the
// kernel remembers where it sent a client before, for longer than sockets live.
func (r *redirected) Forget(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	m := r.machine
	takes := func(addr netip.Addr) bool {
		return slices.Contains(m.nodePorts, addr) || frame.OnLink(addr) && m.node.TakesNodePorts(addr)
	}
	var all []sdk.Service
	for _, svc := range services {
		all = append(all, r.servedHere(svc))
	}
	n, err := conntrack.Forget(of, conntrack.Serving(of, all, takes).Telling(step))
	if err != nil {
		return n, err
	}
	for _, svc := range services {
		r.eachPlace(svc.Name, func(p place) { delete(r.fresh, p) })
	}
	return n, nil
}

// servedHere is a Service with those that serve it: this node too, if no socket of it is new.
func (r *redirected) servedHere(svc sdk.Service) sdk.Service {
	fresh := false
	r.eachPlace(svc.Name, func(p place) { fresh = fresh || r.fresh[p] })
	if !fresh && len(svc.Cluster)+len(svc.Local)+len(svc.Serving) > 0 {
		svc.Serving = append(slices.Clone(svc.Serving), r.bound)
	}
	return svc
}

// owesUDP reports whether a place of UDP could not be opened. Until it is, the kernel
// remembers that it sent its clients nowhere.
func (r *redirected) owesUDP() bool {
	for p := range r.owed {
		if p.protocol == sdk.UDP {
			return true
		}
	}
	return false
}

// eachPlace calls f with each place of a Service.
func (r *redirected) eachPlace(name sdk.Name, f func(place)) {
	if d := r.table.desired[name]; d != nil {
		for _, c := range d.claims {
			f(c.place)
		}
	}
}
