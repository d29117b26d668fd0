// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"maps"
	"slices"
)

// A Histogram is how often a metric had which values.
type Histogram struct {
	Name   string
	Help   string // as a Sample's
	Labels map[string]string
	Bounds []float64 // ascending
	Counts []uint64  // of values up to each bound and above the one before it; the last, above them all
	Sum    float64   // of the values
}

// NewHistogram returns one that has seen no value.
func NewHistogram(name string, labels map[string]string, bounds ...float64) Histogram {
	return Histogram{Name: name, Labels: labels, Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

// Observe counts v.
func (h *Histogram) Observe(v float64) {
	at, _ := slices.BinarySearch(h.Bounds, v)
	h.Counts[at]++
	h.Sum += v
}

// Clone returns h as it is now: what is observed later does not reach it.
func (h Histogram) Clone() Histogram {
	h.Labels, h.Bounds, h.Counts = maps.Clone(h.Labels), slices.Clone(h.Bounds), slices.Clone(h.Counts)
	return h
}
