// SPDX-License-Identifier: Apache-2.0

package health

import (
	"maps"

	"github.com/pointsman/pointsman/host/track"
)

// Reasons why Services are not served as specified, in status and in pointsman_unserved.
const (
	Failed   = "failed"   // the dataplane failed to serve them, and it is retried
	Refused  = "refused"  // the dataplane cannot serve them
	Withheld = "withheld" // the dataplane lacks a feature that they need
	Conflict = "conflict" // another Service owns their frontend
	Invalid  = "invalid"  // their specification is invalid
)

// Other states of a port of a Service.
const (
	Served      = "served"       // served as specified
	NoEndpoints = "no endpoints" // served, but callers are rejected
	Pending     = "pending"      // not sent to the dataplane yet, or not confirmed
)

// ReasonOf returns the reason for a problem of the tracker.
func ReasonOf(problem string) string {
	if problem == track.FrontendTaken {
		return Conflict
	}
	return Invalid
}

// emitUnserved emits the number of ports that p does not serve, and of problems of Services, by
// reason.
func emitUnserved(e emitter, p Dataplane, troubled []track.ServiceStatus) {
	count := make(map[string]int)
	maps.Copy(count, p.Unserved)
	for _, s := range troubled {
		for _, problem := range s.Problems {
			count[ReasonOf(problem.Reason)]++
		}
	}
	for _, reason := range []string{Failed, Refused, Withheld, Conflict, Invalid} {
		e.gauge("pointsman_unserved", "Ports of Services that failed, were refused or withheld, and Services in conflict or invalid.", float64(count[reason]), labels{"plugin": p.Name, "why": reason})
	}
}
