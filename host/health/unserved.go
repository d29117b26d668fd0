// SPDX-License-Identifier: Apache-2.0

package health

import (
	"maps"

	"github.com/pointsman/pointsman/host/track"
)

// The reasons why Services are not served as they ask, in status and in pointsman_unserved.
const (
	Failed   = "failed"   // the dataplane could not, and is asked again
	Refused  = "refused"  // the dataplane cannot
	Withheld = "withheld" // the dataplane lacks a feature that they need
	Conflict = "conflict" // what they ask for is another Service's
	Invalid  = "invalid"  // what they ask for cannot be used
)

// The other states of a port of a Service.
const (
	Served      = "served"       // as it asks
	NoEndpoints = "no endpoints" // likewise, and callers are turned away
	Pending     = "pending"      // the dataplane was not sent it yet, or has not confirmed it
)

func reasons() []string {
	return []string{Failed, Refused, Withheld, Conflict, Invalid}
}

// ReasonOf returns the one that the reason of a problem of the tracker's comes to.
func ReasonOf(problem string) string {
	if problem == track.FrontendTaken {
		return Conflict
	}
	return Invalid
}

// unserved emits how many ports p does not serve, and how many of the problems there are that
// count for it, by reason.
func unserved(e emitter, p Dataplane, problems map[string]int) {
	count := make(map[string]int)
	maps.Copy(count, p.Unserved)
	for problem, n := range problems {
		count[ReasonOf(problem)] += n
	}
	for _, reason := range reasons() {
		e.gauge("pointsman_unserved", "Ports of Services that failed, were refused or withheld, and Services in conflict or invalid.", float64(count[reason]), labels{"plugin": p.Name, "why": reason})
	}
}
