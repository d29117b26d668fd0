// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// countEvery is how often established connections are counted: it may list them all.
const countEvery = 5 * time.Second

// countAgain is how soon after the first time: connections that were just beginning then
// are established now, or gone.
const countAgain = time.Second

// A drain is how far Draining is.
type drain struct {
	on    bool
	own   bool // there may be connections of this process
	fresh bool // they were not counted yet
	due   time.Time
}

// drainOrNot begins or ends to count connections, after a change of the role. The first count is the monitor's: to list a large table takes long, and updates wait for the
// call. Until then there is one.
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

func (d *Dataplane[P]) tellFlows(n int) { d.status.Tell(func(r *sdk.Report) { r.Flows = n }) }
