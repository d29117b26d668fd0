// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/sdk"
)

// This file finds drift: where another program changed what this one wrote.

// Foreign finds that something was removed, or added: a virtual server, of which one is asked for; an entry, of which the
// sets tell how many they have. It is unsure if the kernel does not answer.
func (o *objects) Foreign(context.Context) (why string, unsure bool) {
	const drifted = "virtual services, or entries of sets, are others than were written"
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
			if err != nil || n >= 0 && n != known {
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

// recount takes the kernel's numbers of entries for what was written, right after a repair: the kernel may take two entries for
// one.
func (o *objects) recount() {
	for k := range o.counts {
		if k.kind != ofSet {
			continue
		}
		if n, err := o.kernel.Count(k.entry.set, o.node.family); err == nil && n >= 0 {
			o.counts[k] = n
		}
	}
}

// Probe repairs nothing: it says what another program removed or added, as far as that costs
// little, and what is due by itself.
func (f *family) Probe(ctx context.Context) (found frame.Finding) {
	f.rules.Look(ctx)
	found = f.doubted()
	f.session.noteAddresses()
	switch {
	case f.lost:
		found.Lost, found.Why, found.Unsure = found.Lost|inObjects, "an address was removed", false
	case f.missed:
		found.Unsure = found.Lost == 0
		found.Lost, found.Why = found.Lost|inObjects, "the kernel told of too many addresses at once"
	}
	f.lost, f.missed = false, false
	found.Moved = f.moved
	if time.Since(f.probed) < probeEvery {
		return found
	}
	f.probed = time.Now()
	var err error
	switch why, unsure := f.objects.Foreign(ctx); {
	case unsure:
		err = errors.New(why)
	case why != "":
		found.Lost, found.Why, found.Unsure = found.Lost|inObjects, why, false
	}
	if err == nil && time.Since(f.reaped) >= reapEvery {
		f.reaped = time.Now()
		found.Due, err = f.reap()
	}
	if err == nil && time.Since(f.idleChecked) >= idleEvery {
		f.idleChecked = time.Now()
		var due bool
		due, err = f.upkeep()
		found.Due = found.Due || due
	}
	if err != nil && ctx.Err() == nil {
		f.session.env.Log.Warn("cannot look after the kernel", "family", f.node.family, "err", err)
	}
	return found
}

// How often is looked for what no process tells of. To ask costs some messages to the kernel,
// so it is not done each time that an address comes or goes.
const (
	probeEvery = 900 * time.Millisecond // what another program removed or added
	reapEvery  = time.Minute            // destinations that have had their last connection
	idleEvery  = 5 * time.Second        // in Standby, what is busy no more; while Active, a parameter
)

// upkeep does what is due by itself in a role, and reports whether there is something to write.
func (f *family) upkeep() (due bool, err error) {
	switch f.role {
	case sdk.Standby:
		if len(f.busy.servers) == 0 {
			return false, nil
		}
		if due, err = f.seeBusy(); due {
			f.placeAll() // what has had its last connection is taken away
		}
		return due, err
	case sdk.Active:
		return false, f.session.keepTracking(f)
	}
	return false, nil
}

// doubted are the rules, if they may not be as they were written.
func (f *family) doubted() (found frame.Finding) {
	if found.Why = f.rules.Doubt(); found.Why != "" {
		found.Lost = inRules
	}
	found.Unsure = found.Why == "" && f.rules.Waits()
	return found
}

// Audit compares the entries of some Services, and one chain or jump, with what we know of them.
func (f *family) Audit(ctx context.Context) frame.Finding {
	f.rules.Audit(ctx)
	same, err := f.sample(ctx)
	if err != nil {
		f.session.env.Log.Warn("cannot compare with the kernel", "family", f.node.family, "err", err)
		return f.doubted()
	}
	if !same {
		return frame.Finding{Lost: frame.All, Why: "an audit found something else than was written"}
	}
	return f.doubted()
}

const (
	auditShare = 3    // a round over everything takes so many audits, which is 30 s,
	auditMost  = 1000 // or more, if an audit would take longer than some 0.1 s
)

// turn takes from round what an audit looks at. When a round is over the next begins.
func turn[K comparable, V any](round *[]K, all map[K]V) []K {
	if len(*round) == 0 {
		*round = slices.Collect(maps.Keys(all))
	}
	n := min(len(*round), 1+len(all)/auditShare, auditMost)
	some := (*round)[:n]
	*round = (*round)[n:]
	return some
}

// sample reports whether some of what there is, is as we know it: entries of some Services, and in one audit of a few the
// destinations of all virtual servers, which are listed at once.
func (f *family) sample(ctx context.Context) (same bool, err error) {
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
	for _, name := range turn(&f.round, f.Installed()) {
		f.Entries(name, f.Installed()[name], func(k key, v value) {
			if same && err == nil && k.kind == ofEntry {
				same, err = f.objects.Has(ctx, k, v)
			}
		})
	}
	return same, err
}
