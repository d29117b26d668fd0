// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"slices"
	"time"
)

// timers are what a loop does at a time and not at an event. When the first is due it
// looks at all of them: there are few, because a pair leaves when its endpoint accepts.
type timers struct {
	wakeAt  time.Time // when the first is due, or earlier. zero: never
	dialing []*pair   // wait for an endpoint to accept
	paused  []*loopListener
}

// atLatest wakes the loop at t, or earlier.
func (ts *timers) atLatest(t time.Time) {
	if ts.wakeAt.IsZero() || t.Before(ts.wakeAt) {
		ts.wakeAt = t
	}
}

// startDial gives the endpoint that p connects to so long to accept.
func (ts *timers) startDial(p *pair, timeout time.Duration) {
	p.dialing.until = time.Now().Add(timeout)
	ts.putDial(p)
}

func (ts *timers) putDial(p *pair) {
	p.dialing.index = len(ts.dialing)
	ts.dialing = append(ts.dialing, p)
	ts.atLatest(p.dialing.until)
}

// stopDial takes d out: its endpoint has accepted, or is given up.
func (ts *timers) stopDial(d *dialing) {
	if d.index == noTimer {
		return
	}
	last := len(ts.dialing) - 1
	ts.dialing[d.index] = ts.dialing[last]
	ts.dialing[d.index].dialing.index = d.index
	ts.dialing[last] = nil
	ts.dialing = ts.dialing[:last]
	d.index = noTimer
}

// pause resumes l after so long.
func (ts *timers) pause(l *loopListener, wait time.Duration) {
	l.pausedUntil = time.Now().Add(wait)
	ts.paused = append(ts.paused, l)
	ts.atLatest(l.pausedUntil)
}

// unpause takes l out: it is closed.
func (ts *timers) unpause(l *loopListener) {
	ts.paused = slices.DeleteFunc(ts.paused, func(p *loopListener) bool { return p == l })
}

// timerGrain is how much later than due a timer may run, so that many are looked at
// together.
const timerGrain = 5 * time.Millisecond

// runTimers does what is due.
func (l *loop) runTimers() {
	if l.timers.wakeAt.IsZero() {
		return
	}
	now := time.Now()
	if now.Before(l.timers.wakeAt) {
		return
	}
	due := l.timers
	l.timers = timers{}
	for _, p := range due.dialing {
		p.dialing.index = noTimer
		if now.Before(p.dialing.until) {
			l.timers.putDial(p)
			continue
		}
		p.onDialTimeout()
	}
	for _, p := range due.paused {
		if now.Before(p.pausedUntil) {
			l.timers.paused = append(l.timers.paused, p)
			l.timers.atLatest(p.pausedUntil)
			continue
		}
		p.resume()
	}
	if earliest := now.Add(timerGrain); !l.timers.wakeAt.IsZero() && l.timers.wakeAt.Before(earliest) {
		l.timers.wakeAt = earliest
	}
}
