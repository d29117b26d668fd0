// SPDX-License-Identifier: Apache-2.0

package health

import (
	"time"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// progress knows since when something waits to be served, over all sessions and all
// dataplanes. It is told what is, and when; it looks at no clock.
type progress struct {
	waiting time.Time                // since when something waits; zero: nothing does
	served  track.Changes            // that nothing was owed of when it was last looked
	ready   bool                     // everything was served once
	applied map[sdk.Family]time.Time // when something last was confirmed
}

// look takes in how the dataplane that is meant to serve is. Before anything was heard
// nothing can be owed: what an earlier host left in the kernel serves.
func (p *progress) look(plane Plane, heard bool, changes track.Changes, now time.Time) {
	follows := plane.serves() && plane.NoWriter == ""
	switch {
	case !heard:
		p.waiting = time.Time{}
	case follows:
		p.waiting, p.ready = plane.Since, true
	case p.waiting.IsZero() && p.owes(plane, changes):
		p.waiting = now
	}
	if follows && plane.Since.IsZero() {
		p.served = changes
	}
}

// owes reports whether something is owed by a dataplane that does not follow: it is away,
// or is told everything anew, or may not write. What was confirmed before is in the kernel,
// save of one whose work ends with its process.
func (p *progress) owes(plane Plane, changes track.Changes) bool {
	return !p.ready || plane.Mortal || plane.NoWriter != "" || plane.Failure != "" || changes != p.served
}

// confirm takes in when something was confirmed. A family that an update was not about is
// as up to date as the others.
func (p *progress) confirm(families []sdk.Family, now time.Time) {
	if p.applied == nil {
		p.applied = make(map[sdk.Family]time.Time)
	}
	for _, f := range families {
		p.applied[f] = now
	}
	for f := range p.applied {
		p.applied[f] = now
	}
}

// last returns when something was confirmed; zero: nothing was.
func (p *progress) last() time.Time {
	var last time.Time
	for _, at := range p.applied {
		if at.After(last) {
			last = at
		}
	}
	return last
}
