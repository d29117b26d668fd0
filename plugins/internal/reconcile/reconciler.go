// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"

	"github.com/pointsman/pointsman/sdk"
)

// A Reconciler has the desired and the installed pieces of one kernel table or rule set.
type Reconciler[P Piece[P], K, V comparable] struct {
	Name  string // begins each step of a plan, for people
	Batch int    // about how many changes one call of Kernel.Apply gets; zero: all

	// Partial says that the kernel has no transactions: Kernel.Apply writes a batch without its refused entries. It gets
	// what is added in one batch and what is removed in another. What it added for a Service that has a refused entry
	// is reverted in between.
	Partial bool

	// Applied, if not nil, is called after a plan was applied without an error.
	Applied func()

	mode   Mode[P, K, V]
	kernel Kernel[K, V]

	desired   map[sdk.Name]P
	installed map[sdk.Name]P
	touched   map[sdk.Name]bool // the Services whose desired piece may differ from the installed one

	role   sdk.Role
	listed map[K]V         // all entries of the kernel, from List until a plan was applied; else nil
	fixed  map[K]V         // the installed entries that belong to no Service
	refix  bool            // Mode.Fixed may return other entries than fixed
	uses   map[K]int       // of each counted entry that is installed: how many Services need it
	need   map[string]bool // the containers of all entries since List
}

// New returns a Reconciler. List must be called before Plan.
func New[P Piece[P], K, V comparable](mode Mode[P, K, V], kernel Kernel[K, V]) *Reconciler[P, K, V] {
	return &Reconciler[P, K, V]{
		mode: mode, kernel: kernel,
		desired: make(map[sdk.Name]P), installed: make(map[sdk.Name]P), touched: make(map[sdk.Name]bool),
		fixed: make(map[K]V), uses: make(map[K]int), need: make(map[string]bool),
	}
}

// Desired returns the desired pieces by Service. The caller must not modify the map.
func (r *Reconciler[P, K, V]) Desired() map[sdk.Name]P { return r.desired }

// Installed returns the pieces by which the kernel serves, as far as they were listed or applied. The caller must not
// modify the map.
func (r *Reconciler[P, K, V]) Installed() map[sdk.Name]P { return r.installed }

// SetDesired replaces the desired pieces of the given Services. A zero value removes the Service.
func (r *Reconciler[P, K, V]) SetDesired(all map[sdk.Name]P) {
	var none P
	if len(r.desired) == 0 {
		r.desired = make(map[sdk.Name]P, len(all))
	}
	if len(r.touched) == 0 {
		r.touched = make(map[sdk.Name]bool, len(all))
	}
	for name, p := range all {
		if r.touched[name] = true; p.Equal(none) {
			delete(r.desired, name)
		} else {
			r.desired[name] = p
		}
	}
}

// SetRole replaces the role for which fixed entries are planned.
func (r *Reconciler[P, K, V]) SetRole(role sdk.Role) {
	r.role = role
	r.Refix()
}

// Planned returns the role for which fixed entries are planned.
func (r *Reconciler[P, K, V]) Planned() sdk.Role { return r.role }

// isEmpty reports whether the kernel has no entry, as far as it was listed or applied.
func (r *Reconciler[P, K, V]) isEmpty() bool {
	return len(r.listed)+len(r.fixed)+len(r.installed) == 0
}

// Refix makes the next plan compare the fixed entries, because what Mode.Fixed returns may have changed.
func (r *Reconciler[P, K, V]) Refix() { r.refix = true }

// List reads the kernel, and returns the role that its entries imply. The next plan compares everything.
func (r *Reconciler[P, K, V]) List(ctx context.Context) (sdk.Role, error) {
	listed, err := r.kernel.List(ctx)
	if err != nil {
		return 0, err
	}
	installed, role := r.mode.Parse(listed)
	if installed == nil {
		installed = make(map[sdk.Name]P)
	}
	r.listed, r.installed = listed, installed
	clear(r.fixed)
	clear(r.uses)
	clear(r.need)
	return role, nil
}

// EachInstalled calls add with each entry that the kernel has, as far as it was listed or applied. A counted entry comes
// once for each Service that needs it.
func (r *Reconciler[P, K, V]) EachInstalled(add func(K, V)) {
	for k, v := range r.fixed {
		add(k, v)
	}
	for name, p := range r.installed {
		r.mode.Entries(name, p, add)
	}
}
