// SPDX-License-Identifier: Apache-2.0

package track

import (
	"time"

	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/sdk"
)

// A Standing is the state of one port of a Service in one dataplane. At most one of Lacks, Err
// and Pending is set, and then the Service is not served as desired.
type Standing struct {
	Since   time.Time     // since when it is in this state; for a served Service, when it was confirmed; zero if not known
	Lacks   []sdk.Feature // features that the dataplane lacks, so the Service is withheld
	Err     error         // why the dataplane failed to serve or refused it
	Pending bool          // not sent yet, or not confirmed
}

// Standing returns the state of name in the dataplane.
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

// Explain returns the status of a Service and, for each of its Ports, the reason why each
// endpoint is used or not used on this node.
func (t *Tracker) Explain(key Key) (s ServiceStatus, endpoints [][]reach.Explanation, known bool) {
	t.mu.Lock()
	defer t.unlock()
	svc := t.services[key]
	if svc == nil || svc.spec == nil {
		return ServiceStatus{}, nil, false
	}
	for _, p := range svc.ports {
		endpoints = append(endpoints, reach.Explain(svc.records(), p.Port, p.Family, t.thisNode))
	}
	return t.status(svc), endpoints, true
}
