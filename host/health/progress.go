// SPDX-License-Identifier: Apache-2.0

package health

import (
	"time"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// progress keeps since when something waits to be served, over all sessions and all
// dataplanes. It is given what is, and when; it looks at no clock.
type progress struct {
	waiting time.Time                // since when something waits; zero: nothing does
	served  track.Changes            // that nothing was owed of when it was last looked
	ready   bool                     // everything was served once
	applied map[sdk.Family]time.Time // when something last was confirmed
}

// look notes how the dataplane that is meant to serve is. Before the source has synced
// nothing can be owed: what an earlier host left in the kernel serves.
func (p *progress) look(dataplane Dataplane, synced bool, changes track.Changes, now time.Time) {
	follows := dataplane.serves() && dataplane.NoWriter == ""
	switch {
	case !synced:
		p.waiting = time.Time{}
	case follows:
		p.waiting, p.ready = dataplane.Since, true
	case p.waiting.IsZero() && p.owes(dataplane, changes):
		p.waiting = now
	}
	if follows && dataplane.Since.IsZero() {
		p.served = changes
	}
}

// owes reports whether something is owed by a dataplane that does not follow: it is away,
// or is sent everything again, or may not write. What was confirmed before is in the kernel,
// save of one whose work ends with its process.
func (p *progress) owes(dataplane Dataplane, changes track.Changes) bool {
	return !p.ready || dataplane.Mortal || dataplane.NoWriter != "" || dataplane.Failure != "" || changes != p.served
}

// confirm notes when something was confirmed. A family that an update was not about is
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
