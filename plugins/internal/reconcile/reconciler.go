// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"

	"github.com/pointsman/pointsman/sdk"
)

// A Reconciler stores the desired and the installed pieces of one kernel table or rule set.
type Reconciler[P Piece[P], K, V comparable] struct {
	Name  string // the prefix of each step of a plan
	Batch int    // the approximate number of changes in one call of Kernel.Apply; zero: all

	// Partial says that the kernel has no transactions: Kernel.Apply writes a batch without the
	// refused entries. It gets additions in one batch and, if none is refused, the removals in a
	// second one.
	Partial bool

	// Applied, if not nil, is called after each plan that was applied without an error.
	Applied func()

	mode   Mode[P, K, V]
	kernel Kernel[K, V]

	desired   map[sdk.Name]P
	installed map[sdk.Name]P
	touched   map[sdk.Name]bool // the Services whose desired piece may differ from the installed one

	role   sdk.Role
	listed map[K]V         // all entries of the kernel, from List until a plan is applied; otherwise nil
	fixed  map[K]V         // the installed entries that belong to no Service
	refix  bool            // Mode.Fixed may return other entries than fixed
	uses   map[K]int       // for each installed counted entry, how many Services need it
	need   map[string]bool // the containers in which Services have had entries since List
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

// Installed returns the pieces by which the kernel serves, as they were listed or applied. The
// caller must not modify the map.
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

// Refix makes the next plan compare the fixed entries, because the result of Mode.Fixed may have
// changed.
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

// EachInstalled calls add with each installed entry. It calls add with a counted entry once for
// each Service that needs it.
func (r *Reconciler[P, K, V]) EachInstalled(add func(K, V)) {
	for k, v := range r.fixed {
		add(k, v)
	}
	for name, p := range r.installed {
		r.mode.Entries(name, p, add)
	}
}
