// SPDX-License-Identifier: Apache-2.0

package health

import (
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// progress knows whether what changes is applied in time. It is told what is, and
// when; it looks at no clock.
type progress struct {
	allowed time.Duration            // how long a change may wait
	waiting time.Time                // since when one does; zero: none
	applied map[sdk.Family]time.Time // when something last was
	ready   bool                     // everything was applied once
}

// look takes in whether something waits to be applied.
func (p *progress) look(pending bool, now time.Time) {
	switch {
	case !pending:
		p.waiting = time.Time{}
	case p.waiting.IsZero():
		p.waiting = now
	}
}

// confirm takes in that what waited was applied. What has changed meanwhile
// begins to wait now.
func (p *progress) confirm(families []sdk.Family, full bool, now time.Time) {
	if p.applied == nil {
		p.applied = make(map[sdk.Family]time.Time)
	}
	for _, f := range families {
		p.applied[f] = now
	}
	for f := range p.applied {
		p.applied[f] = now // nothing of it waited
	}
	p.waiting = time.Time{}
	p.ready = p.ready || full
}

// late reports whether something has waited for too long. A host that is starting
// is not late.
func (p *progress) late(now time.Time) bool {
	return p.ready && !p.waiting.IsZero() && now.Sub(p.waiting) >= p.allowed
}

// last is when something was applied; zero: nothing was.
func (p *progress) last() time.Time {
	var last time.Time
	for _, at := range p.applied {
		if at.After(last) {
			last = at
		}
	}
	return last
}
