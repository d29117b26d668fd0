// SPDX-License-Identifier: Apache-2.0

package track

import (
	"iter"
	"slices"
	"strings"
)

// atOnce is how many Services are looked at while changes wait: it takes less than a millisecond.
const atOnce = 100

// All goes through the Services that are known, in order of name. No change waits for the caller, nor longer
// than it takes to collect the names, or to look at a hundred Services. So each Service is as it is when it is
// looked at, and one that comes meanwhile is left out.
func (t *Tracker) All() iter.Seq[ServiceStatus] {
	return func(yield func(ServiceStatus) bool) {
		part := make([]ServiceStatus, 0, atOnce)
		for keys := range slices.Chunk(t.keys(), atOnce) {
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

// Services returns what All goes through.
func (t *Tracker) Services() []ServiceStatus { return slices.Collect(t.All()) }

// keys are those of all Services that are known, in order of name.
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

// compare orders keys as their texts are ordered, and makes none.
func (k Key) compare(other Key) int {
	if k.Namespace == other.Namespace {
		return strings.Compare(k.Name, other.Name)
	}
	return strings.Compare(k.Namespace+"/", other.Namespace+"/")
}
