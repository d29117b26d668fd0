// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// forgetFlows ends the kernel's UDP flows that the present turn left leading
// nowhere. One that leads to this node is ours, and stays, unless the socket that
// it led to was another: the kernel remembers where it sent a caller before, for
// longer than sockets live.
func (d *Dataplane) forgetFlows(touched map[place]bool) error {
	w := d.way
	if w == nil || w.rules.lock == nil || d.role != sdk.Active {
		return nil
	}
	services := d.udpAt(touched)
	if len(services) == 0 {
		return nil
	}
	ground := d.ground
	takes := func(addr netip.Addr) bool {
		return slices.Contains(ground.nodePorts, addr) || duty.OnLink(addr) && ground.node.TakesNodePorts(addr)
	}
	for _, s := range w.rules.sides {
		f := s.Family()
		began := time.Now()
		n, err := conntrack.Forget(f, conntrack.Serving(f, services, takes).Telling(d.gotOn))
		d.status.rounds[index(f)].Count(time.Since(began), n)
		if err != nil {
			return fmt.Errorf("forget udp flows: %w", err)
		}
		if n > 0 {
			d.status.log.Load().Info("forgot udp flows", "family", f, "flows", n)
		}
	}
	for p := range touched {
		delete(w.fresh, p)
	}
	return nil
}

// udpAt are the UDP Services that have one of the places, with those who serve
// them: this node too, if no socket of theirs is new.
func (d *Dataplane) udpAt(touched map[place]bool) []sdk.Service {
	found := make(map[sdk.Name]sdk.Service)
	for p := range touched {
		c, owned := d.table.owner(p)
		s := d.services[c.name]
		if !owned || p.protocol != sdk.UDP || s == nil {
			continue
		}
		if _, again := found[c.name]; !again {
			found[c.name] = d.servedHere(*s.Value())
		}
	}
	return slices.Collect(maps.Values(found))
}

func (d *Dataplane) servedHere(svc sdk.Service) sdk.Service {
	for _, c := range d.table.claims[svc.Name] {
		if d.way.fresh[c.place] {
			return svc
		}
	}
	if len(svc.Cluster)+len(svc.Local)+len(svc.Serving) > 0 {
		svc.Serving = append(slices.Clone(svc.Serving), *d.way.portals.to[index(svc.Name.Family)].Load())
	}
	return svc
}
