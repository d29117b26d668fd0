// SPDX-License-Identifier: Apache-2.0

package track

import (
	"time"

	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/sdk"
)

// A Standing is how far a dataplane is with one port of a Service. At most one of Lacks,
// Err and Pending says that it is not served as it is to be.
type Standing struct {
	Since   time.Time     // since when it is so; of what is served, when that was received; zero: not known
	Lacks   []sdk.Feature // of the dataplane, for which the Service is kept from it
	Err     error         // what it could not, or refused
	Pending bool          // it was not handed out yet, or is not confirmed
}

// Standing returns how far the dataplane is with what is to be served under name.
func (c *Cursor) Standing(name sdk.Name) Standing {
	c.t.mu.Lock()
	defer c.t.unlock()
	if w, is := c.withheld[name]; is {
		return Standing{Since: w.since, Lacks: w.lacks}
	}
	if f, is := c.failed[name]; is {
		return Standing{Since: f.since, Err: f.err}
	}
	last, confirmed := c.confirmed[name]
	flying, isFlying := c.flight[name]
	owed, isOwed := c.owed[name]
	switch {
	case isFlying:
		return Standing{Since: flying.since, Pending: true}
	case isOwed:
		return Standing{Since: owed, Pending: true}
	case !confirmed || c.full:
		return Standing{Since: c.since(), Pending: true}
	}
	return Standing{Since: time.Unix(last.at, 0)}
}

// Explain returns one of Services, with why each endpoint of each of its ports is used here or
// not; an entry for each of Ports.
func (t *Tracker) Explain(key Key) (s ServiceStatus, endpoints [][]reach.Explanation, known bool) {
	t.mu.Lock()
	defer t.unlock()
	svc := t.services[key]
	if svc == nil || svc.spec == nil {
		return ServiceStatus{}, nil, false
	}
	for _, p := range svc.ports {
		endpoints = append(endpoints, reach.Explain(svc.records(), p.Port, p.Family, t.here))
	}
	return t.status(svc), endpoints, true
}
