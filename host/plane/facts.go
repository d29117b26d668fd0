// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"maps"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// Observed returns the facts for a host that finds no file, from the roles that the kernel
// shows for each mode. The Active mode serves; if several are Active, wanted takes precedence.
// Every other mode with a role is left to be cleaned up.
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

// WithRequest returns the facts after a request for a mode while the config file has mode file. The
// request stays in force, also for the next hosts, until the file's mode changes or another
// mode is requested. A request for the file's own mode ends it.
func (f Facts) WithRequest(mode, file string, force bool) Facts {
	f.Number++
	f.Asked, f.File, f.Force = mode, file, force
	if mode == file {
		f.Asked, f.File = "", ""
	}
	return f
}

// WithFileMode returns the facts for a config file with mode file. A request that was made under another mode of the
// file ends, and does not come back into force when the file changes back.
func (f Facts) WithFileMode(file string) Facts {
	if f.File != file {
		f.Asked, f.File, f.Force = "", "", false
	}
	return f
}

// Wanted returns the desired mode: the requested one if it is in force, else the config file's.
func (f Facts) Wanted(file string) string {
	if f.Asked != "" && f.File == file {
		return f.Asked
	}
	return file
}

// WithLeft returns the facts to write before a process of a mode may write to the kernel. From then on the mode may
// have rules to clean up.
func (f Facts) WithLeft(mode string) Facts {
	if mode != f.Served && !slices.Contains(f.Left, mode) {
		f.Left = append(slices.Clone(f.Left), mode)
	}
	return f
}

// WithServed returns the facts once it is certain that a mode serves. The mode that served before
// is left to be cleaned up.
func (f Facts) WithServed(mode string) Facts {
	if f.Served != "" && f.Served != mode {
		before := f.Served
		f.Served = mode
		f = f.WithLeft(before)
	}
	f.Served = mode
	f.Left = without(f.Left, mode)
	return f
}

// WithRefusal returns the facts after w failed. former is the build that serves instead, if it is
// of the same mode.
func (f Facts) WithRefusal(w Want, former, why string, now, next time.Time) Facts {
	r := &Refusal{Mode: w.Mode, Build: w.Build, Number: w.Number, Former: former, Why: why, At: now, Next: next, Tries: 1}
	if f.Refused.Refuses(w) {
		r.Tries = f.Refused.Tries + 1
	}
	f.Refused = r
	return f
}

// without returns a copy of modes without mode.
func without(modes []string, mode string) []string {
	return slices.DeleteFunc(slices.Clone(modes), func(m string) bool { return m == mode })
}
