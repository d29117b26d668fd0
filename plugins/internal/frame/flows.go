// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

const (
	// countEvery is how often established connections are counted: it may list them all.
	countEvery = 5 * time.Second

	// countAgain is how soon after the first time: connections that were just beginning then
	// are established now, or gone.
	countAgain = time.Second
)

// A drain counts the connections that are left while the role is Draining.
type drain struct {
	begun bool // they were counted once
	due   time.Time
}

// drainOrNot begins or ends to count connections, after a change of the role. The first
// count is the monitor's: to list a large table takes long, and updates wait for the call.
// Until then there is one.
func (d *Dataplane[P]) drainOrNot() {
	switch {
	case d.role != sdk.Draining:
		d.drain = nil
		d.tellFlows(0)
	case d.drain == nil:
		d.drain = &drain{due: time.Now()}
		if d.served {
			d.tellFlows(1)
		}
	}
}

// count counts what is left of the connections that were there when draining began.
func (d *Dataplane[P]) count() {
	if d.role != sdk.Draining || d.drain == nil || !d.served || !d.writes() || time.Now().Before(d.drain.due) {
		return
	}
	n := 0
	for _, f := range d.families {
		tracked, ok := f.Family.(Tracked)
		if !ok {
			continue
		}
		flows, err := tracked.Flows(d.state.Services, !d.drain.begun)
		if err != nil {
			d.drain.due = time.Now().Add(countEvery)
			d.log.Warn("cannot count established connections", "err", err)
			return
		}
		n += flows
	}
	wait := countEvery
	if !d.drain.begun {
		wait = countAgain
	}
	d.drain.begun, d.drain.due = true, time.Now().Add(wait)
	d.tellFlows(n)
}

func (d *Dataplane[P]) tellFlows(n int) { d.status.tell(func(r *sdk.Report) { r.Flows = n }) }

var families = []sdk.Family{sdk.IPv4, sdk.IPv6}

// rounds count what it came to, to look for UDP flows that lead nowhere, by IP family.
type rounds map[sdk.Family]*conntrack.Rounds

func newRounds() rounds {
	all := make(rounds)
	for _, of := range families {
		all[of] = conntrack.NewRounds(of)
	}
	return all
}

// forget ends UDP flows that the changes left leading nowhere, and those to frontends that plans removed.
func (d *Dataplane[P]) forget(c sdk.Changes, failed []sdk.Failure) error {
	for _, of := range families {
		f := d.serving(of)
		if f == nil {
			continue
		}
		services := udp(of, d.state, c, failed)
		if len(f.removedUDP) > 0 {
			services = append(services, removedService(of, f.removedUDP))
		}
		tracked, ok := f.Family.(Tracked)
		if !ok || len(services) == 0 {
			continue
		}
		began := time.Now()
		n, err := tracked.Forget(of, services, d.status.step)
		f.rounds[of].Count(time.Since(began), n)
		if err != nil {
			return err
		}
		if n > 0 {
			d.log.Info("forgot udp flows", "family", of, "flows", n)
		}
	}
	for _, f := range d.families {
		f.removedUDP = nil
	}
	return nil
}

// noteRemoved remembers the UDP frontends that a plan is about to remove, also those of a process before
// this one, until a pass has ended the flows to them. In another role than Active the flows are another
// dataplane's.
func (d *Dataplane[P]) noteRemoved(f *family[P], p Plan) {
	if d.role != sdk.Active {
		f.removedUDP = nil
	} else {
		f.removedUDP = append(f.removedUDP, p.RemovedUDP()...)
	}
}

// removedService returns a Service that has these frontends, as far as they are of family, and that nothing
// serves. conntrack.Serving prefers the Service that has one of them now.
func removedService(of sdk.Family, removed []netip.AddrPort) sdk.Service {
	svc := sdk.Service{Name: sdk.Name{Protocol: sdk.UDP, Family: of}}
	for _, at := range removed {
		if sdk.FamilyOf(at.Addr()) == of {
			svc.Frontends = append(svc.Frontends, sdk.Frontend{Addr: at})
		}
	}
	return svc
}

// earlyEvery is the shortest time between two listings of connections for forgetEarly.
const earlyEvery = 5 * time.Second

// An early holds the Services whose frontends are new, for forgetEarly.
type early struct {
	all  bool          // look at every Service
	some []sdk.Service // with the frontends that came
	due  time.Time
}

// noteAdded remembers the frontends of TCP and SCTP that came with an update.
func (d *Dataplane[P]) noteAdded(c sdk.Changes) {
	d.early.all = d.early.all || c.Full
	if d.early.all {
		d.early.some = nil
		return
	}
	for _, change := range c.Services {
		if change.After == nil || change.Name.Protocol == sdk.UDP {
			continue
		}
		added := sdk.Service{Name: change.Name}
		for _, f := range change.After.Frontends {
			if change.Before == nil || !slices.ContainsFunc(change.Before.Frontends, func(b sdk.Frontend) bool { return b.Addr == f.Addr }) {
				added.Frontends = append(added.Frontends, f)
			}
		}
		if len(added.Frontends) > 0 {
			d.early.some = append(d.early.some, added)
		}
	}
}

// forgetEarly deletes the connections that began before their Service was there. The monitor calls it after the
// acknowledgement, as listing connections takes long on a busy node. It uses at most a twentieth of the time.
func (d *Dataplane[P]) forgetEarly() {
	if d.role != sdk.Active || !d.early.all && len(d.early.some) == 0 || time.Now().Before(d.early.due) {
		return
	}
	services := d.early.some
	if d.early.all {
		services = slices.Collect(maps.Values(d.state.Services))
	}
	began := time.Now()
	for _, of := range families {
		f := d.serving(of)
		if f == nil {
			continue
		}
		tracked, ok := f.Family.(Tracked)
		if !ok {
			continue
		}
		n, err := tracked.ForgetEarly(of, services, d.status.step)
		if err != nil {
			d.early.due = time.Now().Add(earlyEvery)
			d.log.Warn("cannot delete connections that began before their service", "family", of, "err", err)
			return
		}
		if n > 0 {
			d.log.Info("deleted connections that began before their service", "family", of, "connections", n)
		}
	}
	d.early = early{due: time.Now().Add(max(earlyEvery, 20*time.Since(began)))}
}

// udp returns the UDP Services of a family that changed, as they are now: their flows may lead
// nowhere. One that failed is served as before, and so are its flows.
func udp(of sdk.Family, state sdk.State, c sdk.Changes, failed []sdk.Failure) []sdk.Service {
	services := make(map[sdk.Name]sdk.Service)
	take := func(name sdk.Name) {
		if svc, there := state.Services[name]; there && name.Protocol == sdk.UDP && name.Family == of {
			services[name] = svc
		}
	}
	for _, change := range c.Services {
		take(change.Name)
	}
	if c.Full || c.Node {
		for name := range state.Services {
			take(name)
		}
	}
	for _, f := range failed {
		delete(services, f.Name)
	}
	return slices.Collect(maps.Values(services))
}
