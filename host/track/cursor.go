// SPDX-License-Identifier: Apache-2.0

package track

import (
	"maps"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A Cursor holds what one dataplane has confirmed and what it still has to be sent. Only one
// goroutine at a time may call Next and Ack, and Sync in between; the other methods may be
// called concurrently.
type Cursor struct {
	t          *Tracker // its mutex guards the fields below
	dataplane  sdk.Description
	takesAddrs bool          // the dataplane has sdk.LimitTakesAddresses
	ready      chan struct{} // holds one token while Next may have an update
	closed     bool

	acked, sent uint64 // revisions
	open        bool   // sent may still be acknowledged
	full        bool   // the next update must be a Full
	fullSent    bool   // the update in flight is a Full

	confirmed map[sdk.Name]confirmation  // what the dataplane serves, as far as we know
	owed      map[sdk.Name]debt          // names with a value that is not confirmed
	failed    map[sdk.Name]failure       // Services that the dataplane could not serve
	withheld  map[sdk.Name][]sdk.Feature // Services that are not sent, with the features that the dataplane lacks

	node, nodeSent *sdk.Node // last confirmed; in flight, nil if it is not

	fullSince time.Time // when full was set; valid while full is true
	nodeSince time.Time // since when the node is owed; zero if it is not

	triggers, triggersSent []time.Time // times at which changes were made: not yet sent, in flight
}

// A debt is a value that is not confirmed. If it was sent, the current value is sent again even if
// it equals the confirmed one, because nobody knows what the dataplane has.
type debt struct {
	since   time.Time    // since when it is owed
	sent    bool         // a value was sent, or must be sent
	rev     uint64       // revision of the update in flight; zero if the value has yet to be sent
	value   *sdk.Service // in flight; nil means Delete
	changed time.Time    // when the value changed after it was sent; zero if it did not
}

// A confirmation is the value that a dataplane confirmed last.
type confirmation struct {
	value *sdk.Service
	at    int64 // Unix seconds at which this value was confirmed. There are many, and a time.Time is three times as large.
}

// A failure is a value that the dataplane could not serve.
type failure struct {
	err   error
	value *sdk.Service
	since time.Time // since when it has failed with this error
}

// Cursor returns a new cursor for a dataplane with description d. Its first update is a Full.
// Services that need a feature that d does not list are withheld from the dataplane.
func (t *Tracker) Cursor(d sdk.Description) *Cursor {
	t.mu.Lock()
	defer t.unlock()
	c := &Cursor{
		t:          t,
		dataplane:  d,
		takesAddrs: slices.Contains(d.Limits, sdk.LimitTakesAddresses),
		ready:      make(chan struct{}, 1),
		full:       true,
		confirmed:  make(map[sdk.Name]confirmation),
		owed:       make(map[sdk.Name]debt),
		failed:     make(map[sdk.Name]failure),
		withheld:   make(map[sdk.Name][]sdk.Feature),

		fullSince: t.now(),
	}
	t.cursors = append(t.cursors, c)
	for name := range t.values {
		c.updateWithheld(name)
	}
	c.signal()
	return c
}

// Close removes the cursor from the tracker.
func (c *Cursor) Close() {
	c.t.mu.Lock()
	defer c.t.unlock()
	c.closed = true
	c.t.cursors = slices.DeleteFunc(c.t.cursors, func(o *Cursor) bool { return o == c })
}

// Changed returns a channel that holds a token while Next may have an update. Any number of
// changes produce one token.
func (c *Cursor) Changed() <-chan struct{} { return c.ready }

func (c *Cursor) signal() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// Resync makes the next update a Full, because a session begins or the dataplane missed an
// update.
func (c *Cursor) Resync() {
	c.t.mu.Lock()
	defer c.t.unlock()
	if !c.full {
		c.fullSince = c.t.now()
	}
	c.full, c.open = true, false
	c.signal()
}

// OwesEverything reports whether the next update is a Full.
func (c *Cursor) OwesEverything() bool {
	c.t.mu.Lock()
	defer c.t.unlock()
	return c.full
}

// Retry queues the Services that failed to be sent again, except refused ones: a refusal is
// final until the Service changes.
func (c *Cursor) Retry() {
	c.t.mu.Lock()
	defer c.t.unlock()
	for name, f := range c.failed {
		if _, owed := c.owed[name]; !owed && !refused(f.err) {
			c.owed[name] = debt{since: c.t.now(), sent: true}
			c.signal()
		}
	}
}

// noteChange records that the value of name changed in the tracker.
func (c *Cursor) noteChange(name sdk.Name) {
	c.updateWithheld(name)
	now := c.desired(name)
	d, owed := c.owed[name]
	f, failed := c.failed[name]
	switch {
	case d.sent:
		if d.changed.IsZero() {
			d.changed = c.t.now() // endFlight compares again after the answer
			c.owed[name] = d
		}
	case failed && !equalValues(now, f.value):
		c.owed[name] = debt{since: c.t.now(), sent: true}
	case failed:
		return // the value that failed is back: leave it to Retry
	case equalValues(now, c.confirmed[name].value):
		delete(c.owed, name)
		return
	case !owed:
		c.owed[name] = debt{since: c.t.now()}
	}
	c.signal()
}

func (c *Cursor) isWithheld(name sdk.Name) bool {
	_, is := c.withheld[name]
	return is
}

// desired returns the value that this dataplane should serve under name; nil means none.
func (c *Cursor) desired(name sdk.Name) *sdk.Service {
	if c.isWithheld(name) {
		return nil
	}
	return c.t.values[name]
}

// Next returns the update that leads from the state that the dataplane confirmed to the desired
// state. It returns false if there is nothing to send.
func (c *Cursor) Next() (sdk.Update, bool) {
	c.t.mu.Lock()
	defer c.t.unlock()
	if !c.t.synced || c.closed || c.awaitsNodes() {
		return sdk.Update{}, false
	}
	if c.full {
		return c.fullUpdate(), true
	}
	return c.deltaUpdate()
}

// fullUpdate returns a Full.
func (c *Cursor) fullUpdate() sdk.Update {
	u := sdk.Update{To: c.sent + 1, Full: true, Set: make([]sdk.Service, 0, len(c.t.values))}
	since := c.since()
	c.owed = make(map[sdk.Name]debt, len(c.t.values))
	clear(c.confirmed) // a Service that is missing here and comes back as it was must be sent
	for name, value := range c.t.values {
		if !c.isWithheld(name) {
			u.Set = append(u.Set, *value)
			c.owed[name] = debt{since: since, sent: true, rev: u.To, value: value}
		}
	}
	maps.DeleteFunc(c.failed, func(name sdk.Name, _ failure) bool {
		_, sent := c.owed[name]
		return !sent // likewise, also if its value is the one that failed
	})
	c.completeUpdate(&u, c.t.node)
	return u
}

// deltaUpdate returns the names that changed and those that were sent but never confirmed.
func (c *Cursor) deltaUpdate() (sdk.Update, bool) {
	u := sdk.Update{From: c.acked, To: c.sent + 1}
	for name, d := range c.owed {
		value := c.desired(name)
		c.owed[name] = debt{since: d.since, sent: true, rev: u.To, value: value}
		if value == nil {
			u.Delete = append(u.Delete, name)
		} else {
			u.Set = append(u.Set, *value)
		}
	}
	var node *sdk.Node
	if c.nodeSent != nil || c.node == nil || !c.node.Equal(*c.t.node) {
		node = c.t.node
	} else {
		c.nodeSince = time.Time{} // the node changed and changed back
	}
	if len(c.owed) == 0 && node == nil {
		c.triggers = nil // their changes cancelled each other out
		c.owed = make(map[sdk.Name]debt)
		return sdk.Update{}, false
	}
	c.completeUpdate(&u, node)
	return u, true
}

// completeUpdate completes u and marks it as in flight. The order within u has no meaning; it
// is sorted to make logs readable.
func (c *Cursor) completeUpdate(u *sdk.Update, node *sdk.Node) {
	slices.SortFunc(u.Set, func(a, b sdk.Service) int { return a.Name.Compare(b.Name) })
	slices.SortFunc(u.Delete, sdk.Name.Compare)
	u.Node, c.nodeSent = node, node
	c.sent, c.open, c.fullSent = u.To, true, u.Full
	c.triggersSent = appendTriggers(c.triggersSent, c.triggers...)
	c.triggers = nil
}
