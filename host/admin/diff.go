// SPDX-License-Identifier: Apache-2.0

package admin

// A Diff is where the kernel serves something else than the dataplane should serve.
type Diff struct {
	Meta
	Mode     string    `json:"mode"`
	Changes  []Change  `json:"changes"`        // none: nothing differs
	More     int       `json:"more,omitempty"` // so many changes are left out
	Unserved []Problem `json:"unserved"`       // Services that the dataplane failed to serve
	Notes    []string  `json:"notes,omitempty"`
}

// A Change is one frontend that is not served as it should be.
type Change struct {
	Step    string   `json:"step"`              // which frontend, of which Service
	Details []string `json:"details,omitempty"` // what differs, and what is served now
}

// Differs reports whether anything is not served as it should be.
func (d Diff) Differs() bool { return len(d.Changes)+d.More > 0 }
