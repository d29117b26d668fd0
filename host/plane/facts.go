// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"maps"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// Observed returns the facts of a host that finds none, by the roles that the kernel shows of each mode; wanted is the
// mode that is wanted. The mode that shows Active serves, and any other that shows a role is left to clean up.
func Observed(wanted string, shown map[string]sdk.Role) (f Facts) {
	if shown[wanted] == sdk.Active {
		f.Served = wanted
	}
	for _, mode := range slices.Sorted(maps.Keys(shown)) {
		switch role := shown[mode]; {
		case role == 0 || role == sdk.Absent || mode == f.Served:
		case role == sdk.Active && f.Served == "":
			f.Served = mode
		default:
			f.Left = append(f.Left, mode)
		}
	}
	return f
}

// Comes returns the facts before a process of a mode may write to the kernel.
func (f Facts) Comes(mode string) Facts {
	if mode != f.Served && !slices.Contains(f.Left, mode) {
		f.Left = append(slices.Clone(f.Left), mode)
	}
	return f
}

// Serves returns the facts once it is certain that a mode serves. What served before it is left to clean up.
func (f Facts) Serves(mode string) Facts {
	if f.Served != "" && f.Served != mode {
		f = Facts{Served: mode, Left: f.Left, Refused: f.Refused}.Comes(f.Served)
	}
	f.Served = mode
	f.Left = without(f.Left, mode)
	return f
}

// Cleaned returns the facts once a mode has nothing in the kernel.
func (f Facts) Cleaned(mode string) Facts {
	f.Left = without(f.Left, mode)
	return f
}

// Refuses returns the facts after w failed. former is the build that serves, where it is of the same mode.
func (f Facts) Refuses(w Want, former, why string, next time.Time) Facts {
	r := &Refusal{Mode: w.Mode, Build: w.Build, Number: w.Number, Former: former, Why: why, Next: next, Tries: 1}
	if f.Refused.of(w) {
		r.Tries = f.Refused.Tries + 1
	}
	f.Refused = r
	return f
}

// without returns a copy of modes that lacks one.
func without(modes []string, mode string) []string {
	return slices.DeleteFunc(slices.Clone(modes), func(m string) bool { return m == mode })
}
