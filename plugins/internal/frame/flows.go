// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

var families = []sdk.Family{sdk.IPv4, sdk.IPv6}

// tracked returns the IP families whose connections the kernel tracks, with the Family of each.
func (d *Dataplane[P]) tracked() iter.Seq2[sdk.Family, Tracked] {
	return func(yield func(sdk.Family, Tracked) bool) {
		for _, of := range families {
			f := d.serving(of)
			if f == nil {
				continue
			}
			if t, ok := f.Family.(Tracked); ok && !yield(of, t) {
				return
			}
		}
	}
}

// countEvery is the minimum interval at which established connections are counted. A count may list
// all of them, so counting takes at most a twentieth of the time. Connections that began just before
// the first count are established by the second, or gone.
const countEvery = time.Second

// A drain counts the remaining connections while the role is Draining.
type drain struct {
	begun bool // they were counted once
	due   time.Time
}

// updateDrain begins or ends a drain after a change of the role. The monitor makes the first
// count, because listing a large table takes long and would delay the call. Until then one
// connection is reported.
func (d *Dataplane[P]) updateDrain() {
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

// countFlows counts the remaining connections of those that existed when draining began.
func (d *Dataplane[P]) countFlows() {
	if d.role != sdk.Draining || d.drain == nil || !d.served || time.Now().Before(d.drain.due) {
		return
	}
	n, began := 0, time.Now()
	defer func() { d.drain.due = began.Add(max(countEvery, 20*time.Since(began))) }()
	for _, f := range d.families {
		t, ok := f.Family.(Tracked)
		if !ok {
			continue
		}
		flows, err := t.Flows(d.state.Services, !d.drain.begun)
		if err != nil {
			d.warn("cannot count established connections", f, "", err)
			return
		}
		n += flows
	}
	d.drain.begun = true
	d.tellFlows(n)
}

func (d *Dataplane[P]) tellFlows(n int) { d.status.change(func(r *sdk.Report) { r.Flows = n }) }

// noteRemoved records the UDP frontends that a plan removes, also those of a former process, for
// the next forgetUDP. In another role than Active the flows belong to another dataplane.
func (d *Dataplane[P]) noteRemoved(p Plan) {
	if d.role != sdk.Active {
		d.removedUDP = nil
	} else {
		d.removedUDP = append(d.removedUDP, p.RemovedUDP()...)
	}
}

// forgetUDP deletes UDP flows whose endpoint does not serve: flows to touched Services, and to
// frontends that plans have removed.
func (d *Dataplane[P]) forgetUDP(touched map[sdk.Name]bool) error {
	for of, t := range d.tracked() {
		services := d.touchedUDP(of, touched)
		removed := sdk.Service{Name: sdk.Name{Protocol: sdk.UDP, Family: of}} // without endpoints; conntrack.Serving prefers a Service that has the frontend now
		for _, at := range d.removedUDP {
			if sdk.FamilyOf(at.Addr()) == of {
				removed.Frontends = append(removed.Frontends, sdk.Frontend{Addr: at})
			}
		}
		if len(removed.Frontends) > 0 {
			services = append(services, removed)
		}
		if len(services) == 0 {
			continue
		}
		began := time.Now()
		n, err := t.Forget(of, services, d.status.step)
		d.rounds[of].count(time.Since(began), n)
		if err != nil {
			return err
		}
		if n > 0 {
			d.log.Info("deleted udp flows without a serving endpoint", "family", of, "flows", n)
		}
	}
	d.removedUDP = nil
	return nil
}

// touchedUDP returns the touched UDP Services of a family. It leaves out Services that failed: they
// are served as before, so their flows stay.
func (d *Dataplane[P]) touchedUDP(of sdk.Family, touched map[sdk.Name]bool) (services []sdk.Service) {
	for name := range touched {
		svc, exists := d.state.Services[name]
		if exists && name.Protocol == sdk.UDP && name.Family == of && !d.failed[name] {
			services = append(services, svc)
		}
	}
	return services
}

// earlyEvery is the minimum interval between two lists of connections for forgetEarly.
const earlyEvery = 5 * time.Second

// An early says which Services forgetEarly looks at next, and when.
type early struct {
	owed map[sdk.Name]bool // Services with a new TCP frontend
	due  time.Time
}

// noteAdded records which Services have a new TCP frontend after an update. After a Full it is unknown which frontends
// were served before, so these are all that it touched.
func (d *Dataplane[P]) noteAdded(c sdk.Changes, touched map[sdk.Name]bool) {
	if d.early.owed == nil {
		d.early.owed = make(map[sdk.Name]bool)
	}
	if c.Full {
		maps.Copy(d.early.owed, touched)
	}
	for _, c := range c.Services {
		isNew := func(f sdk.Frontend) bool {
			return c.Before == nil || !slices.ContainsFunc(c.Before.Frontends, func(b sdk.Frontend) bool { return b.Addr == f.Addr })
		}
		if c.After != nil && c.Name.Protocol == sdk.TCP && slices.ContainsFunc(c.After.Frontends, isNew) {
			d.early.owed[c.Name] = true
		}
	}
}

// forgetEarly deletes connections that began before their Service existed. The monitor calls it
// after the acknowledgement, because listing connections takes long on a busy node. It uses at
// most a twentieth of the time.
func (d *Dataplane[P]) forgetEarly() {
	if d.role != sdk.Active || len(d.early.owed) == 0 || time.Now().Before(d.early.due) {
		return
	}
	var services []sdk.Service
	later := make(map[sdk.Name]bool)
	for name := range d.early.owed {
		switch svc, exists := d.state.Services[name]; {
		case exists && d.failed[name]: // its frontends may not be served yet
			later[name] = true
		case exists:
			services = append(services, svc)
		}
	}
	began := time.Now()
	for of, t := range d.tracked() {
		n, err := t.ForgetEarly(of, services, d.status.step)
		if err != nil {
			d.early.due = time.Now().Add(earlyEvery)
			d.log.Warn("cannot delete connections that began before their service", "family", of, "err", err)
			return
		}
		if n > 0 {
			d.log.Info("deleted connections that began before their service", "family", of, "connections", n)
		}
	}
	d.early = early{owed: later, due: time.Now().Add(max(earlyEvery, 20*time.Since(began)))}
}
