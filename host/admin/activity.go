// SPDX-License-Identifier: Apache-2.0

package admin

import "time"

// An Activity is what a host and the dataplane that serves have done so far. Two of one host give
// rates.
type Activity struct {
	Meta
	At          time.Time `json:"at"`    // when the rest was so
	Began       time.Time `json:"began"` // when the host did, and counted from zero
	Node        string    `json:"node"`
	Mode        string    `json:"mode"`
	Dataplane   Plugin    `json:"dataplane"`
	Changes     uint64    `json:"changes"`     // of Services and EndpointSlices that were heard of
	Updates     uint64    `json:"updates"`     // that this dataplane confirmed
	SyncSeconds float64   `json:"syncSeconds"` // that they took together
	Sync        Sync      `json:"sync"`
	Connections *uint64   `json:"connections"` // that the dataplane's process has taken; null: it does not count them
	Slowest     []Wait    `json:"slowest"`     // those that wait longest or, in the last minute, waited longest; at most ten
}

// A Wait is how long a port of a Service waited for the dataplane to confirm it as it is now.
type Wait struct {
	Service string    `json:"service"` // as events name it
	State   string    `json:"state"`   // pending: it still waits; served: it was confirmed
	Since   time.Time `json:"since"`
	Seconds float64   `json:"seconds"`
}
