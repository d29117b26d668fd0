// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"slices"
	"time"
)

// A clock is what a loop does at a time and not at an event. It looks at all who
// wait when the first is due: there are few, because whoever is answered leaves.
type clock struct {
	wake    time.Time // when the first is due, or earlier. zero: never
	dialing []*link   // wait for an endpoint to answer
	resting []*door   // take nobody in, because they could not
}

// atLatest wakes the loop at t, or earlier.
func (c *clock) atLatest(t time.Time) {
	if c.wake.IsZero() || t.Before(c.wake) {
		c.wake = t
	}
}

// await gives the endpoint that k calls so long to answer.
func (c *clock) await(k *link, wait time.Duration) {
	k.call.until = time.Now().Add(wait)
	c.goOnWaiting(k)
}

func (c *clock) goOnWaiting(k *link) {
	k.call.index = len(c.dialing)
	c.dialing = append(c.dialing, k)
	c.atLatest(k.call.until)
}

// stopWaiting for a call: it was answered, or is given up.
func (c *clock) stopWaiting(l *call) {
	if l.index == notWaiting {
		return
	}
	last := len(c.dialing) - 1
	c.dialing[l.index] = c.dialing[last]
	c.dialing[l.index].call.index = l.index
	c.dialing[last] = nil
	c.dialing = c.dialing[:last]
	l.index = notWaiting
}

// rest wakes d after so long.
func (c *clock) rest(d *door, wait time.Duration) {
	d.until = time.Now().Add(wait)
	c.resting = append(c.resting, d)
	c.atLatest(d.until)
}

// grain is how much later than due somebody may be woken, so that many who wait are
// looked at together.
const grain = 5 * time.Millisecond

// lookAtClock does what is due.
func (l *loop) lookAtClock() {
	if l.wake.IsZero() {
		return
	}
	now := time.Now()
	if now.Before(l.wake) {
		return
	}
	dialing, resting := l.dialing, l.resting
	l.clock = clock{}
	for _, k := range dialing {
		k.call.index = notWaiting
		if now.Before(k.call.until) {
			l.goOnWaiting(k)
			continue
		}
		k.late()
	}
	for _, d := range resting {
		if now.Before(d.until) {
			l.resting = append(l.resting, d)
			l.atLatest(d.until)
			continue
		}
		d.open()
	}
	if earliest := now.Add(grain); !l.wake.IsZero() && l.wake.Before(earliest) {
		l.wake = earliest
	}
}

// stopResting: d is closed.
func (c *clock) stopResting(d *door) {
	c.resting = slices.DeleteFunc(c.resting, func(r *door) bool { return r == d })
}
