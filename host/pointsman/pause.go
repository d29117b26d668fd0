// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"time"
)

const (
	// decoding is long enough to decode what some hundred changed EndpointSlices say.
	decoding = 20 * time.Millisecond

	// mostPause is less than the time after which client-go takes a connection for dead that
	// nothing is read of.
	mostPause = time.Second

	never = time.Duration(math.MaxInt64 / 2) // since the last update, where there was none
)

// pause is how long what the API server tells may wait to be read together with more of it. Before
// everything has been heard of once, it does not.
func (h *host) pause() time.Duration {
	if !h.tracker.HasSynced() {
		return 0
	}
	since := never
	if last := h.updated.Load(); last != nil {
		since = time.Since(*last)
	}
	return pauseFor(h.follower.Host().MinSyncPeriod, since)
}

// pauseFor returns that for a gap between two updates of the dataplane, of which the last ended so
// long ago. What is read shortly before the next one may go waits no longer than for that update,
// and several processes work once in a gap and not for each event. Sooner would be too soon, and
// later would have the first event asked for an update without the others.
func pauseFor(gap, since time.Duration) time.Duration {
	switch left := gap - since - decoding; {
	case gap == 0:
		return 0
	case left > decoding:
		return min(left, mostPause)
	case left > -5*decoding: // what was just read goes with the next one; what comes now, with the one after it
		return min(left+gap, mostPause)
	}
	return min(gap/4, mostPause/4) // what was just read may be no reason for one
}
