// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
)

// This file detects drift: changes that another program made to our objects.

// Foreign detects removed or added objects at little cost: it asks for one virtual server, and for the number
// of members of each set. unsure is set if the kernel does not answer.
func (o *objects) Foreign(context.Context) (why string, unsure bool) {
	const drifted = "virtual servers or set members differ from what was written"
	if at, is := o.anyServer(); is {
		if there, err := o.kernel.Exists(at); err != nil {
			return err.Error(), true
		} else if !there {
			return drifted, false
		}
	}
	for k, known := range o.counts {
		if k.kind == ofSet {
			n, err := o.kernel.Count(k.entry.set, o.node.family)
			if err != nil || n != known {
				return drifted, false
			}
		}
	}
	return "", false
}

// anyServer returns one of the virtual servers.
func (f *family) anyServer() (serviceKey, bool) {
	for s := range f.servers() {
		return s.at, true
	}
	return serviceKey{}, false
}

// recount stores the kernel's member counts as the expected ones, right after a repair: the kernel may store
// two entries as one member.
func (o *objects) recount() {
	for k := range o.counts {
		if k.kind != ofSet {
			continue
		}
		if n, err := o.kernel.Count(k.entry.set, o.node.family); err == nil {
			o.counts[k] = n
		}
	}
}

// Probe reports what another program removed or added, as far as that is cheap to find, and what is due in this
// role. It repairs nothing.
func (f *family) Probe(ctx context.Context) (found frame.Finding) {
	f.rules.Look(ctx)
	found = f.rulesFinding()
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
	if time.Since(f.probedAt) < probeEvery {
		return found
	}
	f.probedAt = time.Now()
	var err error
	if found.Lost == 0 && time.Since(f.auditedAt) >= auditEvery {
		f.auditedAt = time.Now()
		var same bool
		if same, err = f.auditSample(ctx); err == nil && !same {
			found.Lost, found.Why, found.Unsure = frame.All, "an audit found a difference from what was written", false
		}
	}
	switch why, unsure := f.objects.Foreign(ctx); {
	case unsure:
		err = errors.New(why)
	case why != "":
		found.Lost, found.Why, found.Unsure = found.Lost|inObjects, why, false
	}
	if err == nil && time.Since(f.reapedAt) >= reapEvery {
		f.reapedAt = time.Now()
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
	auditEvery = 10 * time.Second       // auditSample
	reapEvery  = time.Minute            // reapDrained
)

// rulesFinding returns a finding if the rules may differ from what was written.
func (f *family) rulesFinding() (found frame.Finding) {
	if found.Why, found.Unsure = f.rules.Doubted(); found.Why != "" {
		found.Lost = inRules
	}
	return found
}

const (
	auditShare = 3    // number of audits in a round over all objects, which takes 30 s
	auditMost  = 1000 // maximum size of an audit, about 0.1 s; a round may then take longer
)

// nextAudits removes the keys for one audit from round and returns them. It starts the next round when round is
// empty.
func nextAudits[K comparable, V any](round *[]K, all map[K]V) []K {
	if len(*round) == 0 {
		*round = slices.Collect(maps.Keys(all))
	}
	n := min(len(*round), 1+len(all)/auditShare, auditMost)
	some := (*round)[:n]
	*round = (*round)[n:]
	return some
}

// auditSample reports whether a sample of our objects is as it was written. It checks the set members of some
// Services, and in one of auditShare audits the destinations of all virtual servers, which are listed at once.
func (f *family) auditSample(ctx context.Context) (same bool, err error) {
	if f.audits++; f.audits%auditShare == 0 {
		loads, err := f.loads()
		if err != nil {
			return false, err
		}
		for s := range f.servers() {
			dests, there := loads[s.at]
			if !there && s.at.mark == 0 || newState(s.state.scheduling, s.state.flags, dests) != s.state {
				return false, nil
			}
		}
	}
	same = true
	for _, name := range nextAudits(&f.auditRound, f.Installed()) {
		f.Entries(name, f.Installed()[name], func(k key, v value) {
			if same && err == nil && k.kind == ofEntry {
				same, err = f.objects.Has(ctx, k, v)
			}
		})
	}
	return same, err
}
