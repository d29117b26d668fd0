// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/sdk"
)

// Apply writes the plan in batches. The first batch has the fixed entries, and all Services that
// exchange entries. Apply returns the Services that the kernel refused; all others are written. If
// the kernel is Partial, it stops after such a batch and lists the kernel. The next plan then
// removes what was written for the refused Services, and writes the rest. After an error the state
// of the kernel is unknown. A *frame.Refused names the Services to one of which the error belongs.
func (p Plan[P, K, V]) Apply(ctx context.Context) (failed []sdk.Failure, err error) {
	r, rest := p.r, p.services
	for first := true; first || len(rest) > 0; first = false {
		w := writer[P, K, V]{r: r, group: rest[:r.batchLen(rest)]}
		if first {
			w.group = rest[:max(len(w.group), p.linked)]
			w.first, w.fixed, w.rebuild = true, p.fixed, p.rebuild
		}
		if p.rebuild { // the first batch removes everything that serves now
			w.group = rest
		}
		rest = rest[len(w.group):]
		refused, err := w.write(ctx)
		if err != nil {
			return nil, err
		}
		if r.Partial && len(refused) > 0 {
			_, err := r.List(ctx)
			return refused, err
		}
		failed = append(failed, refused...)
	}
	r.listed, r.touched = nil, make(map[sdk.Name]bool) // a new map, because iterating over one takes time in proportion to its largest size
	if r.Applied != nil {
		r.Applied()
	}
	return failed, nil
}

// batchLen returns how many of the services make one batch: at least one, if there is any.
func (r *Reconciler[P, K, V]) batchLen(all []*service[P, K, V]) int {
	left := r.Batch
	for i, s := range all {
		if left -= len(s.changes) + len(s.gains) + len(s.drops); left < 0 && i > 0 && r.Batch > 0 {
			return i
		}
	}
	return len(all)
}

// A writer writes one batch.
type writer[P Piece[P], K, V comparable] struct {
	r       *Reconciler[P, K, V]
	first   bool // the first batch of the plan
	rebuild bool
	fixed   []Change[K, V]
	group   []*service[P, K, V]
	counts  map[K]int // by how much the group changes the number of Services that need a counted entry
}

// write writes the batch without the Services that the kernel refuses, and returns these.
func (w *writer[P, K, V]) write(ctx context.Context) (failed []sdk.Failure, err error) {
	for {
		batch := Batch[K, V]{Rebuild: w.rebuild, Phases: w.phases()}
		switch {
		case len(batch.Phases) == 0 && !w.first:
			w.commit()
			return failed, nil
		case w.r.Partial:
			return w.writePartial(ctx, batch)
		}
		refused, err := w.r.kernel.Apply(ctx, batch)
		if err == nil && len(refused) == 0 {
			w.commit()
			return failed, nil
		}
		bad, owned := w.owners(refused)
		if err != nil || owned < len(refused) {
			return nil, refusal(refused, bad, err)
		}
		failed = append(failed, w.leaveOut(bad)...)
	}
}

// writePartial writes a batch to a kernel without transactions: first what is added and replaced,
// and then what is removed. If the kernel refuses entries, nothing is removed.
func (w *writer[P, K, V]) writePartial(ctx context.Context, b Batch[K, V]) ([]sdk.Failure, error) {
	removals, removes := make([][]Change[K, V], len(b.Phases)), false
	for i, phase := range b.Phases {
		for _, c := range phase {
			if c.Op == Remove {
				removals[i], removes = append(removals[i], c), true
			}
		}
		b.Phases[i] = slices.DeleteFunc(phase, func(c Change[K, V]) bool { return c.Op == Remove })
	}
	refused, err := w.r.kernel.Apply(ctx, b)
	bad, owned := w.owners(refused)
	switch {
	case err != nil || owned < len(refused):
		return nil, refusal(refused, bad, err)
	case len(bad) > 0:
		return w.leaveOut(bad), nil
	case removes:
		if refused, err = w.r.kernel.Apply(ctx, Batch[K, V]{Phases: removals}); err != nil || len(refused) > 0 {
			return nil, refusal[P, K, V](refused, nil, err)
		}
	}
	w.commit()
	return nil, nil
}

// refusal returns the error of a batch of which nothing or only a part was written. bad are the
// Services that have refused entries.
func refusal[P Piece[P], K, V comparable](refused map[K]error, bad []*service[P, K, V], err error) error {
	if err == nil {
		for _, why := range refused {
			err = why
		}
	}
	if len(bad) == 0 {
		return err
	}
	r := &frame.Refused{Err: err}
	for _, s := range bad {
		r.Suspects = append(r.Suspects, s.name)
	}
	return r
}

// owners returns the Services of the group that have refused entries, and the number of these
// entries.
func (w *writer[P, K, V]) owners(refused map[K]error) (bad []*service[P, K, V], owned int) {
	if len(refused) == 0 {
		return nil, 0
	}
	seen := make(map[K]bool)
	for _, s := range w.group {
		note := func(k K) {
			if why, is := refused[k]; is {
				seen[k], s.why = true, why
			}
		}
		for _, c := range s.changes {
			note(c.Key)
		}
		for _, k := range s.gains {
			note(k)
		}
		for _, k := range s.drops {
			note(k)
		}
		if s.why != nil {
			bad = append(bad, s)
		}
	}
	return bad, len(seen)
}

// leaveOut removes refused Services from the group, and those that exchange entries with them.
func (w *writer[P, K, V]) leaveOut(bad []*service[P, K, V]) (failed []sdk.Failure) {
	out := make(map[*service[P, K, V]]bool)
	var leave func(*service[P, K, V], error)
	leave = func(s *service[P, K, V], why error) {
		if out[s] {
			return
		}
		out[s] = true
		failed = append(failed, sdk.Failure{Name: s.name, Err: why})
		for _, peer := range s.peers {
			leave(peer, fmt.Errorf("it exchanges frontends with %s: %w", s.name, why))
		}
	}
	for _, s := range bad {
		leave(s, s.why)
	}
	w.group = slices.DeleteFunc(slices.Clone(w.group), func(s *service[P, K, V]) bool { return out[s] })
	return failed
}

// phases returns the changes of the batch, or none if nothing changes. It also sets w.counts.
func (w *writer[P, K, V]) phases() (all [][]Change[K, V]) {
	n := len(w.fixed)
	w.counts = make(map[K]int, len(w.group))
	for _, s := range w.group {
		n += len(s.changes) + len(s.gains)
		for _, k := range s.gains {
			w.counts[k]++
		}
		for _, k := range s.drops {
			w.counts[k]--
		}
	}
	for _, c := range w.fixed {
		w.r.addTo(&all, c, n)
	}
	for _, s := range w.group {
		for _, c := range s.changes {
			w.r.addTo(&all, c, n)
		}
	}
	for k, more := range w.counts {
		switch uses, installed := w.r.uses[k]; {
		case !installed && more > 0:
			w.r.addTo(&all, Change[K, V]{Op: Add, Key: k}, n)
		case installed && more < 0 && uses+more == 0:
			w.r.addTo(&all, Change[K, V]{Op: Remove, Key: k}, n)
		}
	}
	return all
}

// addTo adds a change to its phase. A new phase gets room for n changes.
func (r *Reconciler[P, K, V]) addTo(phases *[][]Change[K, V], c Change[K, V], n int) {
	kind := r.mode.Kind(c.Key)
	phase := int(kind.Add)
	if c.Op == Remove {
		phase = int(kind.Remove)
	}
	for len(*phases) <= phase {
		*phases = append(*phases, nil)
	}
	if (*phases)[phase] == nil {
		(*phases)[phase] = make([]Change[K, V], 0, n)
	}
	(*phases)[phase] = append((*phases)[phase], c)
}

// commit records that the batch is written.
func (w *writer[P, K, V]) commit() {
	r := w.r
	for k, more := range w.counts {
		if r.uses[k] += more; r.uses[k] == 0 && more < 0 {
			delete(r.uses, k)
		}
	}
	for _, s := range w.group {
		r.install(s.name, s.to)
	}
	if !w.first {
		return
	}
	r.refix = false
	for _, c := range w.fixed {
		switch kind := r.mode.Kind(c.Key); {
		case kind.Counted:
			delete(r.uses, c.Key)
		case c.Op == Remove:
			delete(r.fixed, c.Key)
		default:
			r.fixed[c.Key] = c.New
		}
	}
}

// install records the installed piece of a Service.
func (r *Reconciler[P, K, V]) install(name sdk.Name, p P) {
	var none P
	if p.Equal(none) {
		delete(r.installed, name)
	} else {
		r.installed[name] = p
	}
}
