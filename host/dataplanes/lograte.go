// SPDX-License-Identifier: Apache-2.0

package dataplanes

import "time"

// Of a plugin's log the host's own log takes so many lines at once, and so many in a
// second from then on. `pointsman plugin logs` has the last ones nevertheless.
const (
	logBurst = 500
	logRate  = 20 // lines in a second

	// logReminder is how often the log says that lines are left out.
	logReminder = 10 * time.Second
)

// A logLimit decides which lines of a plugin's log go into the host's. The zero value has
// seen none.
type logLimit struct {
	spent   float64 // of the burst
	seen    time.Time
	left    uint64    // lines left out since the log last said so
	shown   time.Time // when the log last said that lines are left out
	dropped uint64    // lines left out, in all
}

// line returns the limit after one more line. It goes into the log if pass is true; and before
// it the log is to say that so many lines were left out, if say is true.
func (l logLimit) line(now time.Time) (next logLimit, pass, say bool, left uint64) {
	if !l.seen.IsZero() {
		l.spent = max(0, l.spent-logRate*now.Sub(l.seen).Seconds())
	}
	l.seen = now
	if pass = l.spent+1 <= logBurst; pass {
		l.spent++
	} else {
		l.left++
		l.dropped++
	}
	if l.left > 0 && now.Sub(l.shown) >= logReminder {
		left = l.left
		l.left, l.shown = 0, now
		return l, pass, true, left
	}
	return l, pass, false, 0
}
