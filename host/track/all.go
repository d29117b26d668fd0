// SPDX-License-Identifier: Apache-2.0

package track

import (
	"iter"
	"slices"
	"strings"
)

// chunkSize is the number of Services read under one lock of the mutex. That takes less than a
// millisecond.
const chunkSize = 100

// All iterates over the known Services in order of name. It holds the tracker's mutex only
// while it collects the names and while it reads each chunk of a hundred Services, so changes
// never wait for the caller. In return the result is not a snapshot: each Service is read at a
// different time, and Services added during the iteration are missing.
func (t *Tracker) All() iter.Seq[ServiceStatus] {
	return func(yield func(ServiceStatus) bool) {
		part := make([]ServiceStatus, 0, chunkSize)
		for keys := range slices.Chunk(t.keys(), chunkSize) {
			part = part[:0]
			t.mu.Lock()
			for _, key := range keys {
				if svc := t.services[key]; svc != nil && svc.spec != nil {
					part = append(part, t.status(svc))
				}
			}
			t.unlock()
			for _, s := range part {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// Services returns the Services that All yields.
func (t *Tracker) Services() []ServiceStatus { return slices.Collect(t.All()) }

// keys returns the keys of all known Services, in order of name.
func (t *Tracker) keys() []Key {
	t.mu.Lock()
	keys := make([]Key, 0, len(t.services))
	for key, svc := range t.services {
		if svc.spec != nil {
			keys = append(keys, key)
		}
	}
	t.unlock()
	slices.SortFunc(keys, Key.compare)
	return keys
}

// compare orders keys like their String forms, without building those strings.
func (k Key) compare(other Key) int {
	if k.Namespace == other.Namespace {
		return strings.Compare(k.Name, other.Name)
	}
	return strings.Compare(k.Namespace+"/", other.Namespace+"/")
}
