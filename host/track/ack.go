// SPDX-License-Identifier: Apache-2.0

package track

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/pointsman/pointsman/sdk"
)

// Ack confirms the update that led to rev, save for the Services in failed: they
// stay owed, and are offered again when they change, or after Retry unless they
// were refused.
// It returns when the changes that are now served were made, as far as their makers
// said. An Ack of any update but the last one handed out, or of one from before a
// Resync, is ignored.
func (c *Cursor) Ack(rev uint64, failed []sdk.Failure) []time.Time {
	c.t.mu.Lock()
	defer c.t.unlock()
	if !c.take(rev, failed) {
		return nil
	}
	triggers := c.triggersSent
	c.triggersSent = nil
	return triggers
}

// take notes the answer to the update that led to rev. It is false for any but the
// last one handed out.
func (c *Cursor) take(rev uint64, failed []sdk.Failure) bool {
	if !c.open || rev != c.sent {
		return false
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
		clear(c.confirmed)
		maps.DeleteFunc(c.failed, func(name sdk.Name, _ failure) bool {
			_, flying := c.flight[name]
			return !flying // the Full does not name it any more
		})
	}
	for _, name := range c.endFlight(rev, failed) {
		if since, owed := c.owed[name]; owed {
			delete(c.owed, name)
			c.changed(name)
			if _, still := c.owed[name]; still {
				c.owed[name] = since
			}
		}
	}
	return true
}

// endFlight takes what was handed out in the update of that revision out of flight: it
// is confirmed, or failed.
func (c *Cursor) endFlight(rev uint64, failed []sdk.Failure) []sdk.Name {
	why := make(map[sdk.Name]error, len(failed))
	for _, f := range failed {
		why[f.Name] = f.Err
	}
	var answered []sdk.Name
	flight := c.flight
	c.flight = make(map[sdk.Name]handout) // small again: to walk a map costs its largest size
	for name, t := range flight {
		if t.rev != rev {
			c.flight[name] = t
			continue
		}
		answered = append(answered, name)
		if err, ok := why[name]; ok {
			c.fail(name, t.value, err)
		} else {
			c.confirm(name, t.value)
		}
	}
	return answered
}

func (c *Cursor) confirm(name sdk.Name, value *sdk.Service) {
	if value == nil {
		delete(c.confirmed, name)
	} else {
		c.confirmed[name] = confirmation{value, c.t.now().Unix()}
	}
	if _, ok := c.failed[name]; ok {
		delete(c.failed, name)
		if value == nil || len(value.Frontends) == 0 {
			return // it is gone, and not served
		}
		c.t.notices = append(c.t.notices, Notice{Reason: ServiceServed, Object: name.String(), Message: fmt.Sprintf("the %s dataplane serves it now", c.name)})
	}
}

func (c *Cursor) fail(name sdk.Name, value *sdk.Service, err error) {
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
		c.t.warn(ServiceRefused, name.String(), fmt.Sprintf("the %s dataplane cannot serve it: %v", c.name, err))
	} else {
		c.t.warn(ServiceFailed, name.String(), fmt.Sprintf("the %s dataplane could not serve it, and will be asked again: %v", c.name, err))
	}
}

func refused(err error) bool {
	var r *sdk.Refusal
	return errors.As(err, &r)
}

// withhold decides whether a Service is kept from this dataplane because it lacks a
// feature that the Service needs, and reports when that changes.
func (c *Cursor) withhold(name sdk.Name) {
	value := c.t.values[name]
	if value == nil {
		delete(c.withheld, name)
		return
	}
	missing := slices.DeleteFunc(value.Needs(), func(f sdk.Feature) bool { return c.features[f] })
	if len(missing) == 0 {
		delete(c.withheld, name)
		return
	}
	before := c.withheld[name]
	if slices.Equal(missing, before.lacks) {
		return
	}
	c.t.warn(ServiceWithheld, name.String(), fmt.Sprintf("the %s dataplane lacks %v, so it does not serve this", c.name, missing))
	since := before.since
	if since.IsZero() {
		since = c.t.now()
	}
	c.withheld[name] = withheld{missing, since}
}

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
