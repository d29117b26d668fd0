// SPDX-License-Identifier: Apache-2.0

package track

import (
	"cmp"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A Wait is how long one port of a Service was owed to a dataplane, until that confirmed it.
type Wait struct {
	Name  sdk.Name
	Since time.Time
	Until time.Time // zero: it waits still
}

// lasted returns for how long it has waited at now.
func (w Wait) lasted(now time.Time) time.Duration {
	if !w.Until.IsZero() {
		now = w.Until
	}
	return now.Sub(w.Since)
}

const (
	mostWaits   = 10               // that Slowest returns
	waitsOf     = 10 * time.Second // that share a slot
	slotsOfWait = 6
)

// Slowest returns the ten that wait longest or, within the last minute, have waited longest, the
// longest first.
func (c *Cursor) Slowest() []Wait {
	c.t.mu.Lock()
	defer c.t.unlock()
	now := c.t.now()
	longest := longestWaits{now: now}
	for name, since := range c.owed {
		if _, flying := c.flight[name]; !flying { // else it waits since that was owed
			longest.add(Wait{Name: name, Since: since})
		}
	}
	for name, h := range c.flight {
		longest.add(Wait{Name: name, Since: h.since})
	}
	for _, w := range c.waited.lately(now) {
		longest.add(w)
	}
	return longest.list
}

// A waited keeps the longest waits of the last minute that are over. For each ten seconds it has
// a slot of its own, so that what was longest is forgotten when its time has passed, and not what
// was nearly as long. The zero value has none.
type waited [slotsOfWait]struct {
	number int64 // of the ten seconds since the epoch
	longestWaits
}

// add notes a wait that ends now.
func (ws *waited) add(w Wait) {
	number := w.Until.UnixNano() / int64(waitsOf)
	slot := &ws[number%slotsOfWait]
	if slot.number != number {
		slot.number, slot.list = number, nil
	}
	slot.add(w)
}

// lately returns those of the last minute at now, in no order.
func (ws *waited) lately(now time.Time) (all []Wait) {
	for _, slot := range ws {
		if now.UnixNano()/int64(waitsOf)-slot.number < slotsOfWait {
			all = append(all, slot.list...)
		}
	}
	return all
}

// longestWaits are the longest of those that were added, the longest first, one for each name. Most
// that are added to many cost one comparison.
type longestWaits struct {
	now  time.Time // until which those wait that are not over
	list []Wait
}

func (l *longestWaits) add(w Wait) {
	byLength := func(a, b Wait) int {
		return cmp.Or(cmp.Compare(b.lasted(l.now), a.lasted(l.now)), a.Name.Compare(b.Name))
	}
	if len(l.list) == mostWaits && byLength(l.list[mostWaits-1], w) <= 0 {
		return
	}
	switch same := slices.IndexFunc(l.list, func(o Wait) bool { return o.Name == w.Name }); {
	case same >= 0 && l.list[same].lasted(l.now) >= w.lasted(l.now):
		return
	case same >= 0:
		l.list = slices.Delete(l.list, same, same+1)
	case len(l.list) == mostWaits:
		l.list = l.list[:mostWaits-1]
	}
	at, _ := slices.BinarySearchFunc(l.list, w, byLength)
	l.list = slices.Insert(l.list, at, w)
}
