// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	_ "embed"
	"slices"

	"github.com/spf13/pflag"
)

//go:embed defaults.yaml
var defaults string

// Defaults returns the file that has every field at its default, with comments.
func Defaults() string { return defaults }

// Load reads the settings: the defaults, the file at path unless that is empty,
// the environment, and those of flags that were given (see AddFlags; nil: none).
// The error is Problems, all of them, or one about reaching the file.
func Load(path string, flags *pflag.FlagSet) (*Host, error) {
	if path == "" {
		return load("", nil, flags)
	}
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return load(path, data, flags)
}

// load is Load of a file whose content is data.
func load(path string, data []byte, flags *pflag.FlagSet) (*Host, error) {
	layers := []*reader{read(Default, "defaults.yaml", []byte(defaults))}
	if path != "" {
		layers = append(layers, read(File, path, data))
	}
	var problems, warnings Problems
	for _, r := range layers {
		problems = append(problems, r.problems...)
		warnings = append(warnings, r.warnings...)
	}
	h, unreadable := merge(layers, flags)
	problems = append(problems, unreadable...)
	problems = append(problems, settle(h)...)
	if !broken(layers) { // what is not read at all needs no second complaint
		problems = append(problems, check(h)...)
	}
	if len(problems) > 0 {
		return nil, inOrder(problems)
	}
	h.from.path, h.from.hash = path, hashOf(data)
	h.from.warnings = append(warnings, strangers(h)...)
	return h, nil
}

// broken reports whether a layer could not be gone through.
func broken(layers []*reader) bool {
	return slices.ContainsFunc(layers, func(r *reader) bool {
		_, begun := r.origins[""]
		return !begun
	})
}

// inOrder sorts problems as they stand in the file, and keeps one for each field.
func inOrder(problems Problems) Problems {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Where.Layer, b.Where.Layer), cmp.Compare(a.Where.Line, b.Where.Line))
	})
	seen := make(map[string]bool)
	return slices.DeleteFunc(problems, func(p Problem) bool {
		again := p.Field != "" && seen[p.Field]
		seen[p.Field] = true
		return again
	})
}
