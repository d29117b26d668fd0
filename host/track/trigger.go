// SPDX-License-Identifier: Apache-2.0

package track

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// maxTriggers bounds what is remembered for measuring while a dataplane is away.
const maxTriggers = 1 << 12

// triggered remembers when the change that obj brought was made, so that the time
// until it is served can be measured.
func (t *Tracker) triggered(obj *discoveryv1.EndpointSlice) {
	at, err := time.Parse(time.RFC3339Nano, obj.Annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil || at.Before(t.facts.Since) {
		return
	}
	for _, c := range t.cursors {
		c.triggers = remember(c.triggers, at)
	}
}

// remember appends what there is room for.
func remember(to []time.Time, more ...time.Time) []time.Time {
	return append(to, more[:min(len(more), maxTriggers-len(to))]...)
}
