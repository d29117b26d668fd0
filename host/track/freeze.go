// SPDX-License-Identifier: Apache-2.0

package track

import "github.com/pointsman/pointsman/sdk"

// Freeze lets no change in until thaw is called: whoever tells the tracker of one
// waits. What was told before can be asked and handed out. So cursors that have
// nothing pending have all confirmed the same.
func (t *Tracker) Freeze() (thaw func()) {
	t.gate.Lock()
	t.mu.Lock() // whoever came in before is done
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
// between: unlock reports, and whoever is told may come in with a change of its own.
func (t *Tracker) admit() {
	t.gate.RLock()
	defer t.gate.RUnlock()
	t.mu.Lock()
}

// Wanted is how many Services the dataplane is to serve: all but those that it failed to
// serve, those kept from it, and those set aside.
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

// Told is what the dataplane has confirmed, in no order. What it failed to serve,
// and what is set aside, is not among it.
func (c *Cursor) Told() []sdk.Service {
	c.t.mu.Lock()
	defer c.t.unlock()
	told := make([]sdk.Service, 0, len(c.told))
	for name, value := range c.told {
		if _, failed := c.failed[name]; !failed && !c.kept[name] {
			told = append(told, *value)
		}
	}
	return told
}

// Value is what is to be served under name.
func (t *Tracker) Value(name sdk.Name) (sdk.Service, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.values[name]
	if !ok {
		return sdk.Service{}, false
	}
	return *v, true
}

// NamesBut are all names under which something is to be served, save for these.
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
