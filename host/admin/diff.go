// SPDX-License-Identifier: Apache-2.0

package admin

// A Diff is what a dataplane would write, of all that it is to serve, if it were to write all of it
// now: where the kernel has something else.
type Diff struct {
	Meta
	Mode     string    `json:"mode"`
	Serves   bool      `json:"serves"`         // it is the mode that serves; else the kernel may have nothing of it
	Changes  []Change  `json:"changes"`        // in the order in which they would take effect; none: nothing differs
	More     int       `json:"more,omitempty"` // so many changes are left out
	Unserved []Problem `json:"unserved"`       // Services that it would not serve
	Notes    []string  `json:"notes,omitempty"`
}

// A Change is one thing that would be written or removed.
type Change struct {
	Step    string   `json:"step"`              // in words of the tool that an operator would use
	Details []string `json:"details,omitempty"` // what differs there: + comes, - goes
}

// Differs reports whether anything would be written or removed.
func (d Diff) Differs() bool { return len(d.Changes)+d.More > 0 }
