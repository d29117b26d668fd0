// SPDX-License-Identifier: Apache-2.0

package relay

import "sync/atomic"

// Counts are of the whole life of a Relay, or of the present moment.
type Counts struct {
	Accepted    uint64 // TCP connections
	Dialing     int    // of them, now without an endpoint yet
	Established int    // of them, now with one
	DialErrors  uint64
	TurnedAway  uint64 // connections and datagrams that their route drops
	Unanswered  uint64 // connections for which no endpoint answered
	Flows       int    // of UDP, now
	FlowsBegun  uint64
	Overflow    uint64 // datagrams dropped because there were too many flows
	BytesIn     uint64 // from clients
	BytesOut    uint64 // to clients
}

// Open is how many connections and flows there are now.
func (c Counts) Open() int { return c.Dialing + c.Established + c.Flows }

// counters are what Counts is read from.
type counters struct {
	accepted, dialErrors, turnedAway, unanswered, flowsBegun, overflow, bytesIn, bytesOut atomic.Uint64
	dialing, established, flows                                                           atomic.Int64
}

// Counts returns the present counts. It waits for nothing.
func (r *Relay) Counts() Counts {
	c := &r.counters
	return Counts{
		Accepted:    c.accepted.Load(),
		Dialing:     int(c.dialing.Load()),
		Established: int(c.established.Load()),
		DialErrors:  c.dialErrors.Load(),
		TurnedAway:  c.turnedAway.Load(),
		Unanswered:  c.unanswered.Load(),
		Flows:       int(c.flows.Load()),
		FlowsBegun:  c.flowsBegun.Load(),
		Overflow:    c.overflow.Load(),
		BytesIn:     c.bytesIn.Load(),
		BytesOut:    c.bytesOut.Load(),
	}
}
