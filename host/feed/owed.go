// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"errors"
	"time"

	"github.com/pointsman/pointsman/host/pace"
	"github.com/pointsman/pointsman/sdk"
)

// An owed is what the dataplane has not managed so far.
type owed struct {
	services bool      // some failed that may go in later
	since    time.Time // when the first of them did
	errors   int       // Syncs that failed in a row
}

// failed takes in the failures of one update. A refusal is not owed: trying
// again will not help.
func (o *owed) failed(failures []sdk.Failure, now time.Time) {
	for _, f := range failures {
		var refusal *sdk.Refusal
		if !o.services && !errors.As(f.Err, &refusal) {
			o.services, o.since = true, now
		}
	}
}

// due reports whether failed Services are to be offered again.
func (o *owed) due(now time.Time, period time.Duration) bool {
	return o.services && now.Sub(o.since) >= period
}

// count takes in how a step ended.
func (o *owed) count(err error) {
	if err == nil {
		o.errors = 0
		return
	}
	o.errors++
}

// periods are the times a feed keeps.
type periods struct {
	min, retry, period time.Duration
}

// gaps say when the next step is. While the dataplane fails, changes do not
// hasten it: they would only be more of what it cannot take now.
func (p periods) gaps(o owed) pace.Gaps {
	g := pace.Gaps{Min: p.min}
	if o.errors > 0 {
		backoff := p.retry << min(o.errors-1, 20)
		if backoff <= 0 || backoff > p.period {
			backoff = p.period
		}
		g.Min = max(p.min, backoff)
		g.Retry = g.Min
	}
	if o.services {
		g.Max = max(p.period, g.Min)
	}
	return g
}
