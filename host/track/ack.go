// SPDX-License-Identifier: Apache-2.0

package track

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/pointsman/pointsman/sdk"
)

// Ack confirms the update that led to revision rev, except for the Services in failed. Those
// stay owed: they are sent again when they change or after Retry, and refused ones only when
// they change. Ack returns the times at which the changes that are now served were made, as far
// as the objects record them. An Ack for any update but the last one sent, or for an update
// from before a Resync, is ignored.
func (c *Cursor) Ack(rev uint64, failed []sdk.Failure) []time.Time {
	c.t.mu.Lock()
	defer c.t.unlock()
	if !c.open || rev != c.sent {
		return nil
	}
	c.acked, c.open = rev, false
	if c.nodeSent != nil {
		c.node, c.nodeSent, c.nodeSince = c.nodeSent, nil, time.Time{}
		if !c.node.Equal(*c.t.node) {
			c.nodeSince = c.t.nodeSince
		}
	}
	if c.fullSent {
		c.full = false
	}
	c.endFlight(rev, failed)
	triggers := c.triggersSent
	c.triggersSent = nil
	return triggers
}

// endFlight moves the names that were sent in revision rev out of flight, into confirmed or
// failed. Those that changed meanwhile are owed if the change still matters.
func (c *Cursor) endFlight(rev uint64, failed []sdk.Failure) {
	why := make(map[sdk.Name]error, len(failed))
	for _, f := range failed {
		why[f.Name] = f.Err
	}
	owed := c.owed
	c.owed = make(map[sdk.Name]debt) // a new map, because iterating over a map costs as much as its largest size ever
	for name, d := range owed {
		if d.rev != rev {
			c.owed[name] = d
			continue
		}
		if err, ok := why[name]; ok {
			c.recordFailure(name, d.value, err)
		} else {
			c.recordConfirmed(name, d.value)
		}
		if d.changed.IsZero() {
			continue
		}
		c.noteChange(name)
		if again, still := c.owed[name]; still {
			again.since = d.changed
			c.owed[name] = again
		}
	}
}

func (c *Cursor) recordConfirmed(name sdk.Name, value *sdk.Service) {
	if value == nil {
		delete(c.confirmed, name)
	} else {
		c.confirmed[name] = confirmation{value, c.t.now().Unix()}
	}
	if _, ok := c.failed[name]; ok {
		delete(c.failed, name)
		if value == nil || len(value.Frontends) == 0 {
			return // the Service was deleted or has no frontends left: it is not served
		}
		c.t.notices = append(c.t.notices, Notice{Reason: ServiceServed, Object: name.String(), Message: fmt.Sprintf("the %s dataplane serves it now", c.dataplane.Name)})
	}
}

func (c *Cursor) recordFailure(name sdk.Name, value *sdk.Service, err error) {
	if err == nil {
		err = errors.New("no reason given")
	}
	before, again := c.failed[name]
	if again && before.err.Error() == err.Error() {
		c.failed[name] = failure{err, value, before.since}
		return
	}
	c.failed[name] = failure{err, value, c.t.now()}
	if refused(err) {
		c.t.warn(ServiceRefused, name.String(), fmt.Sprintf("the %s dataplane cannot serve it: %v", c.dataplane.Name, err))
	} else {
		c.t.warn(ServiceFailed, name.String(), fmt.Sprintf("the %s dataplane could not serve it, and the host will retry: %v", c.dataplane.Name, err))
	}
}

func refused(err error) bool {
	var r *sdk.Refusal
	return errors.As(err, &r)
}

// updateWithheld decides whether the Service is withheld because the dataplane lacks a feature
// that it needs, and adds a notice if that changed.
func (c *Cursor) updateWithheld(name sdk.Name) {
	var lacks []sdk.Feature
	if value := c.t.values[name]; value != nil {
		lacks = slices.DeleteFunc(value.Needs(), func(f sdk.Feature) bool { return slices.Contains(c.dataplane.Features, f) })
	}
	if slices.Equal(lacks, c.withheld[name]) {
		return
	}
	if c.withheld[name] = lacks; len(lacks) == 0 {
		delete(c.withheld, name)
		return
	}
	c.t.warn(ServiceWithheld, name.String(), fmt.Sprintf("the %s dataplane lacks %v, so it does not serve this", c.dataplane.Name, lacks))
}

// maxTriggers limits how many trigger times are kept while a dataplane is away.
const maxTriggers = 1 << 12

// addTrigger records when the change in obj was made, to measure how long it takes until it is
// served (the endpoints.kubernetes.io/last-change-trigger-time annotation).
func (t *Tracker) addTrigger(obj *discoveryv1.EndpointSlice) {
	at, err := time.Parse(time.RFC3339Nano, obj.Annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil || at.Before(t.facts.Since) {
		return
	}
	for _, c := range t.cursors {
		c.triggers = appendTriggers(c.triggers, at)
	}
}

// appendTriggers appends as many of more as maxTriggers allows.
func appendTriggers(to []time.Time, more ...time.Time) []time.Time {
	return append(to, more[:min(len(more), maxTriggers-len(to))]...)
}
