// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"errors"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/host/pace"
	"github.com/pointsman/pointsman/sdk"
)

// owed is what the dataplane has failed so far.
type owed struct {
	services bool      // some failed that may go in later
	since    time.Time // when the first of them did
	errors   int       // Syncs that failed in a row
}

// failed notes the failures of one update. A refusal is not owed: trying
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

// count counts the errors in a row.
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

// check says what is wrong with p, if anything. Without a wait after an error, a
// dataplane that fails would be called without end.
func (p periods) check() error {
	if p.min < 0 || p.retry <= 0 || p.period <= 0 {
		return fmt.Errorf("feed: want a gap of 0s or more, and waits of more than 0s, not gap %s, retry %s, period %s", p.min, p.retry, p.period)
	}
	return nil
}

// gaps say when the next step is. While the dataplane fails, changes do not
// hasten it: they would only be more of what it cannot take now.
func (p periods) gaps(o owed) pace.Gaps {
	g := pace.Gaps{Min: p.min}
	if o.errors > 0 {
		backoff := p.retry
		for range o.errors - 1 {
			backoff = min(2*backoff, p.period)
		}
		g.Min = max(p.min, min(backoff, p.period))
		g.Retry = g.Min
	}
	if o.services {
		g.Max = max(p.period, g.Min)
	}
	return g
}
