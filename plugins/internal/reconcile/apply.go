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
	counts  map[K]int  // by how much the group changes the number of Services that need a counted entry
	absent  map[K]bool // of a group that is reverted: the entries that need no change
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
		if w.r.Partial && w.absent == nil {
			return w.writePartial(ctx, batch)
		}
		refused, err := w.r.kernel.Apply(ctx, batch)
		if err == nil && len(refused) == 0 {
			w.commit()
			return failed, nil
		}
		owned, of := w.owners(refused)
		if err != nil || owned < len(refused) || w.absent != nil {
			return nil, w.refusal(refused, of, err)
		}
		failed = append(failed, w.leaveOut(of)...)
	}
}

// writePartial writes a batch to a kernel without transactions: first what is added and replaced. What was written so for
// a refused Service is reverted, and then everything is removed that the others do not need any more.
func (w *writer[P, K, V]) writePartial(ctx context.Context, b Batch[K, V]) (failed []sdk.Failure, err error) {
	removals := Batch[K, V]{Phases: make([][]Change[K, V], len(b.Phases))}
	removed := make(map[K]bool)
	for i, phase := range b.Phases {
		for _, c := range phase {
			if c.Op == Remove {
				removals.Phases[i], removed[c.Key] = append(removals.Phases[i], c), true
			}
		}
		b.Phases[i] = slices.DeleteFunc(phase, func(c Change[K, V]) bool { return c.Op == Remove })
	}
	refused, err := w.r.kernel.Apply(ctx, b)
	owned, of := w.owners(refused)
	if err != nil || owned < len(refused) {
		return nil, w.refusal(refused, of, err)
	}
	all := w.group
	failed = w.leaveOut(of)
	out := make(map[sdk.Name]bool, len(failed))
	for _, f := range failed {
		out[f.Name] = true
	}
	back := Plan[P, K, V]{r: w.r}
	for _, s := range all {
		if out[s.name] {
			t := &service[P, K, V]{name: s.name, to: w.r.installed[s.name]}
			w.r.diff(t, s.to)
			back.services = append(back.services, t)
		}
	}
	w.group = all
	w.commit()
	if len(failed) > 0 {
		if err := back.revert(ctx, refused, removed); err != nil {
			return nil, err
		}
		for i, phase := range removals.Phases {
			removals.Phases[i] = slices.DeleteFunc(phase, func(c Change[K, V]) bool { return !removed[c.Key] })
		}
	}
	if len(removed) > 0 {
		if refused, err = w.r.kernel.Apply(ctx, removals); err != nil || len(refused) > 0 {
			return nil, w.refusal(refused, nil, err)
		}
	}
	return failed, nil
}

// revert writes a plan that leads back to what served refused Services, but for the entries that were refused and those that are to
// be removed and still are there. It takes the latter out of removed.
func (p *Plan[P, K, V]) revert(ctx context.Context, refused map[K]error, removed map[K]bool) error {
	p.link()
	undo := writer[P, K, V]{r: p.r, group: p.services, absent: make(map[K]bool)}
	for k := range refused {
		undo.absent[k] = true
	}
	for _, t := range p.services {
		needs := t.gains
		for _, c := range t.changes {
			if c.Op != Remove {
				needs = append(needs, c.Key)
			}
		}
		for _, k := range needs {
			if removed[k] {
				undo.absent[k] = true
				delete(removed, k)
			}
		}
	}
	_, err := undo.write(ctx)
	return err
}

// refusal returns the error of a batch that was not or only partly written.
func (w *writer[P, K, V]) refusal(refused map[K]error, of []refusedService[P, K, V], err error) error {
	if err == nil {
		for _, why := range refused {
			err = why
		}
	}
	if len(of) == 0 {
		return err
	}
	r := &frame.Refused{Err: err}
	for _, s := range of {
		r.Suspects = append(r.Suspects, s.name)
	}
	return r
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
		if w.absent[c.Key] {
			return
		}
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
