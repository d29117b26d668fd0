// SPDX-License-Identifier: Apache-2.0

package track

import "github.com/pointsman/pointsman/sdk"

// Freeze lets no change in until thaw is called: callers of SetService and the like
// wait. What was there before can be asked and handed out. So cursors that have
// nothing pending have all confirmed the same.
func (t *Tracker) Freeze() (thaw func()) {
	t.gate.Lock()
	t.mu.Lock() // a change that came in before is complete
	defer t.mu.Unlock()
	return t.gate.Unlock
}

// Open reports whether changes are let in now.
func (t *Tracker) Open() bool {
	open := t.gate.TryRLock()
	if open {
		t.gate.RUnlock()
	}
	return open
}

// admit is how a change comes in; unlock is how it leaves. The gate is not held in
// between: unlock reports, and what it calls may make a change of its own.
func (t *Tracker) admit() {
	t.gate.RLock()
	defer t.gate.RUnlock()
	t.mu.Lock()
}

// Wanted returns how many Services the dataplane is to serve: all but those that it failed to
// serve, those kept from it, and those quarantined.
func (c *Cursor) Wanted() int {
	c.t.mu.Lock()
	defer c.t.unlock()
	n := 0
	for name := range c.t.values {
		if _, failed := c.failed[name]; !failed && !c.kept[name] && c.withheld[name] == nil {
			n++
		}
	}
	return n
}

// Confirmed returns what the dataplane has confirmed, in no order. What it failed to serve,
// and what is quarantined, is not among it.
func (c *Cursor) Confirmed() []sdk.Service {
	c.t.mu.Lock()
	defer c.t.unlock()
	confirmed := make([]sdk.Service, 0, len(c.confirmed))
	for name, value := range c.confirmed {
		if _, failed := c.failed[name]; !failed && !c.kept[name] {
			confirmed = append(confirmed, *value)
		}
	}
	return confirmed
}

// Value returns what is to be served under name.
func (t *Tracker) Value(name sdk.Name) (sdk.Service, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.values[name]
	if !ok {
		return sdk.Service{}, false
	}
	return *v, true
}

// NamesBut returns all names under which something is to be served, save for these.
func (t *Tracker) NamesBut(these []sdk.Name) []sdk.Name {
	t.mu.Lock()
	defer t.mu.Unlock()
	but := make(map[sdk.Name]bool, len(these))
	for _, n := range these {
		but[n] = true
	}
	all := make([]sdk.Name, 0, len(t.values))
	for n := range t.values {
		if !but[n] {
			all = append(all, n)
		}
	}
	return all
}
