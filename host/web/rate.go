// SPDX-License-Identifier: Apache-2.0

package web

import (
	"sync"
	"time"
)

// A rate lets so many through each second, and some more at once after a quiet time. It is safe for
// concurrent use.
type rate struct {
	perSecond, burst float64
	now              func() time.Time

	mu   sync.Mutex // guards what follows
	left float64    // that may come through at the time last
	last time.Time
}

func newRate(perSecond, burst float64, now func() time.Time) *rate {
	return &rate{perSecond: perSecond, burst: burst, now: now, left: burst, last: now()}
}

// allow reports whether one more may come through now.
func (r *rate) allow() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.left = min(r.burst, r.left+r.perSecond*max(0, now.Sub(r.last).Seconds()))
	r.last = now
	if r.left < 1 {
		return false
	}
	r.left--
	return true
}
