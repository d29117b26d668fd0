// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/sdk"
)

// Apply writes the plan in batches: the fixed entries with the first of them, and linked Services together. It returns
// the Services that the kernel refused; all others are written. After an error it is unknown what the kernel has. A
// *frame.Refused says that the error belongs to one of some Services.
func (p Plan[P, K, V]) Apply(ctx context.Context) (failed []sdk.Failure, err error) {
	r, rest := p.r, p.services
	for first := true; first || len(rest) > 0; first = false {
		w := writer[P, K, V]{r: r, group: rest[:r.take(rest)]}
		if first {
			w.group = rest[:max(len(w.group), p.linked)]
			w.first, w.fixed, w.rebuild = true, p.fixed, p.rebuild
		}
		if p.rebuild { // what serves now goes with the first batch
			w.group = rest
		}
		rest = rest[len(w.group):]
		bad, err := w.write(ctx)
		if err != nil {
			return nil, err
		}
		failed = append(failed, bad...)
	}
	r.listed, r.touched = nil, make(map[sdk.Name]bool) // a new map, because to walk one costs as much as at its largest
	if r.Applied != nil {
		r.Applied()
	}
	return failed, nil
}

// take returns how many of the services make one batch; at least one, if there is any.
func (r *Reconciler[P, K, V]) take(all []*service[P, K, V]) int {
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
	first   bool // of its plan
	rebuild bool
	fixed   []Change[K, V]
	group   []*service[P, K, V]
	counts  map[K]int // by how much the group changes the number of Services that need a counted entry
}

// write writes the batch without the Services that the kernel refuses, and returns these.
func (w *writer[P, K, V]) write(ctx context.Context) (failed []sdk.Failure, err error) {
	for {
		w.count()
		batch := Batch[K, V]{Rebuild: w.rebuild, Phases: w.phases()}
		if len(batch.Phases) == 0 && !w.first {
			w.commit()
			return failed, nil
		}
		refused, err := w.r.kernel.Apply(ctx, batch)
		if err == nil && len(refused) == 0 {
			w.commit()
			return failed, nil
		}
		owned, of := w.owners(refused)
		if err == nil && owned == len(refused) {
			failed = append(failed, w.leaveOut(of)...)
			continue
		}
		refusal := new(frame.Refused)
		for _, s := range of {
			refusal.Suspects = append(refusal.Suspects, s.name)
		}
		for _, why := range refused {
			refusal.Err = why
		}
		if err != nil {
			refusal.Err = err
		}
		if owned == 0 {
			return nil, refusal.Err
		}
		return nil, refusal
	}
}

// A refusedService is a Service of which the kernel refused an entry.
type refusedService[P Piece[P], K, V comparable] struct {
	*service[P, K, V]
	why error
}

// owners returns the Services of the group that have refused entries, and how many of these entries belong to one.
func (w *writer[P, K, V]) owners(refused map[K]error) (owned int, of []refusedService[P, K, V]) {
	if len(refused) == 0 {
		return 0, nil
	}
	seen := make(map[K]bool)
	for _, s := range w.group {
		var why error
		note := func(k K) {
			if err, is := refused[k]; is {
				seen[k], why = true, err
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
		if why != nil {
			of = append(of, refusedService[P, K, V]{s, why})
		}
	}
	return len(seen), of
}

// leaveOut removes refused Services from the group, and those that exchange entries with them.
func (w *writer[P, K, V]) leaveOut(refused []refusedService[P, K, V]) (failed []sdk.Failure) {
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
	for _, s := range refused {
		leave(s.service, s.why)
	}
	w.group = slices.DeleteFunc(slices.Clone(w.group), func(s *service[P, K, V]) bool { return out[s] })
	return failed
}

func (w *writer[P, K, V]) count() {
	w.counts = make(map[K]int, len(w.group))
	for _, s := range w.group {
		for _, k := range s.gains {
			w.counts[k]++
		}
		for _, k := range s.drops {
			w.counts[k]--
		}
	}
}

// phases returns the changes of the batch; none, if nothing changes.
func (w *writer[P, K, V]) phases() (all [][]Change[K, V]) {
	n := len(w.fixed)
	for _, s := range w.group {
		n += len(s.changes) + len(s.gains)
	}
	put := func(c Change[K, V]) {
		kind := w.r.mode.Kind(c.Key)
		phase := kind.Add
		if c.Op == Remove {
			phase = kind.Remove
		}
		for len(all) <= int(phase) {
			all = append(all, nil)
		}
		if all[phase] == nil {
			all[phase] = make([]Change[K, V], 0, n)
		}
		all[phase] = append(all[phase], c)
	}
	for _, c := range w.fixed {
		put(c)
	}
	for _, s := range w.group {
		for _, c := range s.changes {
			put(c)
		}
	}
	for k, more := range w.counts {
		switch uses, installed := w.r.uses[k]; {
		case !installed && more > 0:
			put(Change[K, V]{Op: Add, Key: k})
		case installed && more < 0 && uses+more == 0:
			put(Change[K, V]{Op: Remove, Key: k})
		}
	}
	return all
}

// commit notes that the batch is written.
func (w *writer[P, K, V]) commit() {
	r := w.r
	for k, more := range w.counts {
		if r.uses[k] += more; r.uses[k] == 0 && more < 0 {
			delete(r.uses, k)
		}
	}
	for _, s := range w.group {
		r.install(s)
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

// install notes that a Service has its new piece.
func (r *Reconciler[P, K, V]) install(s *service[P, K, V]) {
	var none P
	if s.to.Equal(none) {
		delete(r.installed, s.name)
	} else {
		r.installed[s.name] = s.to
	}
}
