// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"maps"
	"slices"
)

// A Histogram counts the values of a metric in buckets.
type Histogram struct {
	Name   string
	Help   string // see Sample.Help
	Labels map[string]string
	Bounds []float64 // ascending
	Counts []uint64  // number of values in (previous bound, bound]; the last entry counts values above all bounds
	Sum    float64   // sum of the values
}

// NewHistogram returns an empty Histogram.
func NewHistogram(name string, labels map[string]string, bounds ...float64) Histogram {
	return Histogram{Name: name, Labels: labels, Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

// Observe counts v.
func (h *Histogram) Observe(v float64) {
	at, _ := slices.BinarySearch(h.Bounds, v)
	h.Counts[at]++
	h.Sum += v
}

// Clone returns a copy of h that later observations do not modify.
func (h Histogram) Clone() Histogram {
	h.Labels, h.Bounds, h.Counts = maps.Clone(h.Labels), slices.Clone(h.Bounds), slices.Clone(h.Counts)
	return h
}
