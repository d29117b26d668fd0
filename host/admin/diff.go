// SPDX-License-Identifier: Apache-2.0

package admin

// A Diff lists the frontends for which the kernel differs from what the dataplane should serve.
type Diff struct {
	Meta
	Mode     string    `json:"mode"`
	Changes  []Change  `json:"changes"`        // empty if nothing differs
	More     int       `json:"more,omitempty"` // number of further changes that are not listed
	Unserved []Problem `json:"unserved"`       // Services that the dataplane failed to serve
	Notes    []string  `json:"notes,omitempty"`
}

// A Change is one frontend that is not served as desired.
type Change struct {
	Step    string   `json:"step"`              // the frontend and its Service
	Details []string `json:"details,omitempty"` // what differs, and what is served now
}

// Differs reports whether any frontend is not served as desired.
func (d Diff) Differs() bool { return len(d.Changes)+d.More > 0 }
