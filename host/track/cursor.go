// SPDX-License-Identifier: Apache-2.0

package track

import (
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A Cursor keeps what one dataplane has confirmed, and what it is owed. One caller
// at a time calls Next, Sync, Ack; the other methods may be called beside it.
type Cursor struct {
	t        *Tracker // its mutex guards what follows
	name     string   // the dataplane's, for notices
	features map[sdk.Feature]bool
	takes    bool          // it has sdk.LimitTakesAddresses
	ready    chan struct{} // holds one token while Next may have an update
	closed   bool

	acked, sent uint64 // revisions
	open        bool   // sent may still be acknowledged
	full        bool   // the next update is a Full
	fullSent    bool   // the one in flight is

	confirmed map[sdk.Name]confirmation // by the dataplane
	owed      map[sdk.Name]time.Time    // changed since they were confirmed; since when
	flight    map[sdk.Name]handout      // handed out, or offered again; not confirmed
	failed    map[sdk.Name]failure      // the dataplane could not serve them
	withheld  map[sdk.Name]withheld

	node, nodeSent *sdk.Node // as last confirmed; as handed out, nil: not in flight

	fullSince time.Time // since when everything is owed; it counts while full
	nodeSince time.Time // since when node is; zero: it is not

	triggers, triggersSent []time.Time // when changes were made: owed, in flight
}

// A handout is a value that was handed out in an update; a nil value is a Delete.
type handout struct {
	rev   uint64 // zero: in none yet, it is to be offered again
	value *sdk.Service
	since time.Time // since when it is owed
}

// A confirmation is the value that a dataplane confirmed last.
type confirmation struct {
	value *sdk.Service
	at    int64 // Unix seconds, since when it has been this one: there are many, and a time.Time is thrice as large
}

// failure is what a dataplane could not serve.
type failure struct {
	err   error
	value *sdk.Service
	since time.Time // since when it could not, for this reason
}

// withheld is a Service that is kept from a dataplane.
type withheld struct {
	lacks []sdk.Feature
	since time.Time
}

// Cursor returns a new cursor for a dataplane that describes
// itself as d. Its first update is a Full. Services that need a feature which d
// does not claim are kept from it.
func (t *Tracker) Cursor(d sdk.Description) *Cursor {
	t.mu.Lock()
	defer t.unlock()
	c := &Cursor{
		t:         t,
		name:      d.Name,
		features:  make(map[sdk.Feature]bool),
		takes:     slices.Contains(d.Limits, sdk.LimitTakesAddresses),
		ready:     make(chan struct{}, 1),
		full:      true,
		confirmed: make(map[sdk.Name]confirmation),
		owed:      make(map[sdk.Name]time.Time),
		flight:    make(map[sdk.Name]handout),
		failed:    make(map[sdk.Name]failure),
		withheld:  make(map[sdk.Name]withheld),

		fullSince: t.now(),
	}
	for _, f := range d.Features {
		c.features[f] = true
	}
	t.cursors = append(t.cursors, c)
	for name := range t.values {
		c.withhold(name)
	}
	c.signal()
	return c
}

// Close ends the cursor: the tracker forgets it.
func (c *Cursor) Close() {
	c.t.mu.Lock()
	defer c.t.unlock()
	c.closed = true
	c.t.cursors = slices.DeleteFunc(c.t.cursors, func(o *Cursor) bool { return o == c })
}

// Changed returns a channel that holds a token while Next may have an update. Many
// changes are one token.
func (c *Cursor) Changed() <-chan struct{} { return c.ready }

func (c *Cursor) signal() { post(c.ready) }

// post puts a token into c, if it holds none.
func post(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Resync makes the next update a Full: a session begins, or the dataplane missed
// something.
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

// Retry offers again what the dataplane failed to serve, other than what it
// refused.
func (c *Cursor) Retry() {
	c.t.mu.Lock()
	defer c.t.unlock()
	for name, f := range c.failed {
		if _, flying := c.flight[name]; !flying && !refused(f.err) {
			c.flight[name] = handout{since: c.t.now()}
			c.signal()
		}
	}
}

// changed notes that another value than before is to be served under name.
func (c *Cursor) changed(name sdk.Name) {
	c.withhold(name)
	now := c.now(name)
	_, flying := c.flight[name]
	f, failed := c.failed[name]
	switch {
	case flying:
		c.owe(name) // judged again when the flight has answered
	case failed && !same(now, f.value):
		c.flight[name] = handout{since: c.t.now()}
	case failed:
		return // the very value that failed: in its own time
	case same(now, c.confirmed[name].value):
		delete(c.owed, name)
		return
	default:
		c.owe(name)
	}
	c.signal()
}

// owe notes that name is owed, since now unless it was owed before.
func (c *Cursor) owe(name sdk.Name) {
	if _, before := c.owed[name]; !before {
		c.owed[name] = c.t.now()
	}
}

func (c *Cursor) isWithheld(name sdk.Name) bool {
	_, is := c.withheld[name]
	return is
}

// now returns what this dataplane is to serve under name.
func (c *Cursor) now(name sdk.Name) *sdk.Service {
	if c.isWithheld(name) {
		return nil
	}
	return c.t.values[name]
}

// Next returns the update that leads from what the dataplane confirmed to what is to
// be served now. It is false when there is nothing to hand out.
func (c *Cursor) Next() (sdk.Update, bool) {
	c.t.mu.Lock()
	defer c.t.unlock()
	if !c.t.synced || c.closed || c.awaitsNodes() {
		return sdk.Update{}, false
	}
	if c.full {
		return c.everything(), true
	}
	return c.difference()
}

// everything returns a Full.
func (c *Cursor) everything() sdk.Update {
	u := sdk.Update{To: c.sent + 1, Full: true, Set: make([]sdk.Service, 0, len(c.t.values))}
	since := c.since()
	c.owed = make(map[sdk.Name]time.Time)
	clear(c.flight)
	for name, value := range c.t.values {
		if !c.isWithheld(name) {
			u.Set = append(u.Set, *value)
			c.flight[name] = handout{u.To, value, since}
		}
	}
	c.handOut(&u, c.t.node)
	return u
}

// difference returns what changed, and what is not known to have arrived.
func (c *Cursor) difference() (sdk.Update, bool) {
	u := sdk.Update{From: c.acked, To: c.sent + 1}
	for name, since := range c.owed {
		if _, flying := c.flight[name]; !flying {
			c.flight[name] = handout{since: since}
		}
	}
	c.owed = make(map[sdk.Name]time.Time)
	for name, before := range c.flight {
		value := c.now(name)
		c.flight[name] = handout{u.To, value, before.since}
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
		c.nodeSince = time.Time{} // it is as it was
	}
	if len(c.flight) == 0 && node == nil {
		c.triggers = nil // the changes they were for cancelled out
		return sdk.Update{}, false
	}
	c.handOut(&u, node)
	return u, true
}

// handOut completes u, and notes that it is in flight. The order in u means
// nothing, and is fixed so that it reads well.
func (c *Cursor) handOut(u *sdk.Update, node *sdk.Node) {
	slices.SortFunc(u.Set, func(a, b sdk.Service) int { return a.Name.Compare(b.Name) })
	slices.SortFunc(u.Delete, sdk.Name.Compare)
	u.Node, c.nodeSent = node, node
	c.sent, c.open, c.fullSent = u.To, true, u.Full
	c.triggersSent = remember(c.triggersSent, c.triggers...)
	c.triggers = nil
}
