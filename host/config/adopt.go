// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// live returns the fields that a running host can change.
func live() []string {
	return []string{"mode", "logging.level", "syncPeriod", "minSyncPeriod", "nodePortAddresses", "swap.drainTimeout", "swap.onFailure"}
}

// Live reports whether a running host can change the field at path.
func Live(path string) bool { return slices.Contains(live(), path) }

// spare reports whether path belongs to a plugin that is not in use, which is
// launched with what the file says then.
func spare(path, mode string) bool {
	name, ours := strings.CutPrefix(path, "plugins.")
	return ours && name[:max(0, strings.LastIndexByte(name, '.'))] != mode
}

// adopt returns what becomes of running when its file says wanted: the host with the
// live fields of wanted, which of them are other than before, and which fields
// are other in wanted but must wait for a restart.
func adopt(running, wanted *Host) (h *Host, applied, pending []string) {
	next := *running
	next.from = wanted.from
	next.from.origins = maps.Clone(wanted.from.origins)
	next.Plugins = maps.Clone(wanted.Plugins)
	if inUse, ok := running.Plugins[running.Mode]; ok {
		next.Plugins[running.Mode] = inUse
	} else {
		delete(next.Plugins, running.Mode)
	}
	from := byPath(wanted)
	for path, to := range byPath(&next) {
		switch {
		case Live(path):
			to.Set(from[path])
		case !spare(path, running.Mode):
			next.from.origins[path] = running.Origin(path)
		}
	}
	for _, path := range differences(running, wanted) {
		if Live(path) || spare(path, running.Mode) {
			applied = append(applied, path)
		} else {
			pending = append(pending, path)
		}
	}
	return &next, applied, pending
}

// differences returns the fields that are not the same in a and b, in the order of
// fields, those that only one of them has at the end.
func differences(a, b *Host) []string {
	before, after := make(map[string]any), make(map[string]any)
	var paths []string
	for _, h := range []struct {
		host   *Host
		values map[string]any
	}{{a, before}, {b, after}} {
		for _, s := range h.host.Settings() {
			h.values[s.Field] = s.Value
			if !slices.Contains(paths, s.Field) {
				paths = append(paths, s.Field)
			}
		}
	}
	return slices.DeleteFunc(paths, func(path string) bool { return reflect.DeepEqual(before[path], after[path]) })
}

func byPath(h *Host) map[string]reflect.Value {
	all := make(map[string]reflect.Value)
	for _, f := range fields(h) {
		all[f.path] = f.value
	}
	return all
}
