// SPDX-License-Identifier: Apache-2.0

package track

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// Ack confirms the update that led to rev, save for the Services in failed: they
// stay owed, and are offered again when they change, or after Retry unless they
// were refused. It returns when the changes that are now served were made, as
// far as their makers said. An Ack of any update but the last one handed out, or
// of one from before a Resync, is ignored.
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
		clear(c.told)
		c.dropFailed()
	}
	for _, name := range c.land(rev, failed) {
		if since, owed := c.owed[name]; owed {
			delete(c.owed, name)
			c.changed(name)
			if _, still := c.owed[name]; still {
				c.owed[name] = since
			}
		}
	}
	triggers := c.triggersSent
	c.triggersSent = nil
	return triggers
}

// land takes what the update of that revision told out of flight: it is
// confirmed, or failed.
func (c *Cursor) land(rev uint64, failed []sdk.Failure) []sdk.Name {
	why := make(map[sdk.Name]error, len(failed))
	for _, f := range failed {
		why[f.Name] = f.Err
	}
	var landed []sdk.Name
	flight := c.flight
	c.flight = make(map[sdk.Name]told) // small again: to walk a map costs its largest size
	for name, t := range flight {
		if t.rev != rev {
			c.flight[name] = t
			continue
		}
		landed = append(landed, name)
		if err, ok := why[name]; ok {
			c.fail(name, t.value, err)
		} else {
			c.confirm(name, t.value)
		}
	}
	return landed
}

func (c *Cursor) confirm(name sdk.Name, value *sdk.Service) {
	if value == nil {
		delete(c.told, name)
	} else {
		c.told[name] = value
	}
	if _, ok := c.failed[name]; ok {
		delete(c.failed, name)
		c.t.notices = append(c.t.notices, Notice{Reason: ServiceServed, Object: name.String(), Message: fmt.Sprintf("the %s dataplane serves it now", c.name)})
	}
}

func (c *Cursor) fail(name sdk.Name, value *sdk.Service, err error) {
	if err == nil {
		err = errors.New("no reason given")
	}
	before, again := c.failed[name]
	c.failed[name] = failure{err, value}
	if again && before.err.Error() == err.Error() {
		return
	}
	if refused(err) {
		c.t.warn(ServiceRefused, name.String(), fmt.Sprintf("the %s dataplane cannot serve it: %v", c.name, err))
	} else {
		c.t.warn(ServiceFailed, name.String(), fmt.Sprintf("the %s dataplane could not serve it, and will be asked again: %v", c.name, err))
	}
}

// dropFailed forgets the failures of what a Full no longer names.
func (c *Cursor) dropFailed() {
	for name := range c.failed {
		if _, flying := c.flight[name]; !flying {
			delete(c.failed, name)
		}
	}
}

func refused(err error) bool {
	var r *sdk.Refusal
	return errors.As(err, &r)
}

// judge decides whether a Service is kept from this dataplane because it would
// only half understand it, and says so when that changes.
func (c *Cursor) judge(name sdk.Name) {
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
	if !slices.Equal(missing, c.withheld[name]) {
		c.t.warn(ServiceWithheld, name.String(), fmt.Sprintf("the %s dataplane lacks %v, so it does not serve this", c.name, missing))
	}
	c.withheld[name] = missing
}
