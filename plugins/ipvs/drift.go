// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
)

// This file detects drift: changes that another program made to our objects.

// Foreign detects removed or added objects at little cost: it asks for one virtual server, and for the number
// of members of each set. Every auditEvery it compares all destinations and members. unsure is set if the kernel does not
// answer.
func (o *objects) Foreign(ctx context.Context) (why string, unsure bool) {
	const drifted = "virtual servers or set members differ from what was written"
	for s := range o.servers() {
		if there, err := o.kernel.Exists(s.at); err != nil {
			return err.Error(), true
		} else if !there {
			return drifted, false
		}
		break
	}
	for k, known := range o.counts {
		if k.kind == ofSet {
			n, err := o.kernel.Count(k.entry.set, o.node.family)
			if err != nil || n != known {
				return drifted, false
			}
		}
	}
	if !isDue(&o.auditedAt, auditEvery) {
		return "", false
	}
	same, err := o.audit(ctx)
	switch {
	case err != nil:
		return err.Error(), true
	case !same:
		return "an audit found destinations or set members that differ from what was written", false
	}
	return "", false
}

// audit reports whether the destinations of all virtual servers, and the members of the sets, are as they were written.
// Foreign counts the members, so it is enough that each of them exists.
func (f *family) audit(ctx context.Context) (same bool, err error) {
	loads, err := f.kernel.Table()
	if err != nil {
		return false, err
	}
	for s := range f.servers() {
		dests, there := loads[s.at]
		if !there && s.at.mark == 0 || newState(s.state.scheduling, s.state.flags, dests) != s.state {
			return false, nil
		}
	}
	sets, err := f.kernel.Sets(ctx)
	if err != nil {
		return false, err
	}
	members, same := sets[f.node.family].entries, true
	f.EachInstalled(func(k key, v value) {
		if k.kind == ofEntry {
			n, there := members[k.entry]
			same = same && there && (n == v.note || f.Kind(k).Counted) // a counted one belongs to no Service
		}
	})
	return same, nil
}

// Probe reports what another program removed or added, as far as that is cheap to find, and what is due in this
// role. It repairs nothing.
func (f *family) Probe(ctx context.Context) (found frame.Finding) {
	f.rules.Look(ctx)
	if found.Why, found.Unsure = f.rules.Doubted(); found.Why != "" {
		found.Lost = inRules
	}
	f.session.recordAddrChanges()
	switch {
	case f.addrLost:
		found.Lost, found.Why, found.Unsure = found.Lost|inObjects, "an address was removed", false
	case f.eventsMissed:
		found.Unsure = found.Lost == 0
		found.Lost, found.Why = found.Lost|inObjects, "address events were lost"
	}
	f.addrLost, f.eventsMissed = false, false
	found.Moved = f.addrsChanged
	if !isDue(&f.probedAt, probeEvery) {
		return found
	}
	var err error
	switch why, unsure := f.objects.Foreign(ctx); {
	case unsure:
		err = errors.New(why)
	case why != "":
		found.Lost, found.Why, found.Unsure = found.Lost|inObjects, why, false
	case isDue(&f.reapedAt, reapEvery):
		found.Due, err = f.reapDrained()
	}
	if err != nil && ctx.Err() == nil {
		f.session.env.Log.Warn("probe failed", "family", f.node.family, "err", err)
	}
	return found
}

// Intervals of checks for which the kernel sends no event. They cost some messages to the kernel, so they do
// not run on each address event.
const (
	probeEvery = 900 * time.Millisecond // Foreign
	auditEvery = 30 * time.Second       // audit
	reapEvery  = time.Minute            // reapDrained
)

// isDue reports whether an interval is over since *last, and then sets *last to now.
func isDue(last *time.Time, every time.Duration) bool {
	if time.Since(*last) < every {
		return false
	}
	*last = time.Now()
	return true
}
