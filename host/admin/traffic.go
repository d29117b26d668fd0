// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"time"
)

// A Traffic is what one port of a Service has had, as the dataplane that serves counts it.
type Traffic struct {
	Since                time.Time `json:"since"`       // when counting began
	Connections          uint64    `json:"connections"` // since then; of UDP, flows
	ConnectionsPerSecond float64   `json:"connectionsPerSecond"`
	Bytes                *Bytes    `json:"bytes,omitempty"` // nil: the dataplane does not count them
}

// Bytes are those of a Traffic.
type Bytes struct {
	In           uint64  `json:"in"`  // from callers
	Out          uint64  `json:"out"` // to them
	InPerSecond  float64 `json:"inPerSecond"`
	OutPerSecond float64 `json:"outPerSecond"`
}

// Busier orders what is known of traffic, the most first: by connections a second, by bytes, by all
// connections. What is not known (nil) comes last.
func Busier(a, b *Traffic) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return cmp.Or(
		cmp.Compare(b.ConnectionsPerSecond, a.ConnectionsPerSecond),
		cmp.Compare(b.bytesPerSecond(), a.bytesPerSecond()),
		cmp.Compare(b.Connections, a.Connections),
	)
}

func (t *Traffic) bytesPerSecond() float64 {
	if t.Bytes == nil {
		return 0
	}
	return t.Bytes.InPerSecond + t.Bytes.OutPerSecond
}

// A Reading says how the Traffic of an answer was read.
type Reading struct {
	Seconds float64 `json:"seconds"`       // between the two readings that rates are of
	Why     string  `json:"why,omitempty"` // there is none; empty: there is
}
