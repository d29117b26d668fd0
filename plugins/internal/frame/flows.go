// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"maps"
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

// A drain is how far Draining is.
type drain struct {
	on    bool
	own   bool // there may be connections of this process
	fresh bool // they were not counted yet
	due   time.Time
}

// drainOrNot begins or ends to count connections, after a change of the role. The first
// count is the monitor's: to list a large table takes long, and updates wait for the call.
// Until then there is one.
func (d *Dataplane[P]) drainOrNot() {
	switch {
	case d.role != sdk.Draining:
		d.drain = drain{}
		d.tellFlows(0)
	case !d.drain.on:
		d.drain = drain{on: true, own: d.caught, fresh: true, due: time.Now()}
		if d.caught {
			d.tellFlows(1)
		}
	}
}

// count counts what is left of the connections that were there when draining began.
func (d *Dataplane[P]) count() {
	if d.role != sdk.Draining || !d.drain.own || !d.writes() || time.Now().Before(d.drain.due) {
		return
	}
	n := 0
	for _, f := range d.families {
		drainer, ok := f.Family.(Drainer)
		if !ok {
			continue
		}
		flows, err := drainer.Flows(d.state.Services, d.drain.fresh)
		if err != nil {
			d.drain.due = time.Now().Add(countEvery)
			d.log.Warn("cannot count established connections", "err", err)
			return
		}
		n += flows
	}
	wait := countEvery
	if d.drain.fresh {
		wait = countAgain
	}
	d.drain.fresh, d.drain.due = false, time.Now().Add(wait)
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

// forget ends UDP flows that the changes left leading nowhere.
func (d *Dataplane[P]) forget(c sdk.Changes, failed []sdk.Failure) error {
	for _, of := range families {
		services := udp(of, d.state, c, failed)
		f := d.serving(of)
		if f == nil || len(services) == 0 {
			continue
		}
		forgetter, ok := f.Family.(Forgetter)
		if !ok {
			continue
		}
		began := time.Now()
		n, err := forgetter.Forget(of, services, d.status.step)
		f.rounds[of].Count(time.Since(began), n)
		if err != nil {
			return err
		}
		if n > 0 {
			d.log.Info("forgot udp flows", "family", of, "flows", n)
		}
	}
	return nil
}

// udp are the UDP Services of a family that changed, as they are now: their flows may lead
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
	if c.Full {
		for name := range state.Services {
			take(name)
		}
	}
	for _, f := range failed {
		delete(services, f.Name)
	}
	return slices.Collect(maps.Values(services))
}
