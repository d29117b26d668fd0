// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/binaries"
	"github.com/pointsman/pointsman/host/config"
)

// Refuses returns an error if a changed config file must be rejected: its new mode has no
// plugin, or the serving plugin refuses its new options.
func (set *Set) Refuses(wanted *config.Host) error {
	if err := set.modeRefused(wanted); err != nil {
		return err
	}
	main := set.serving()
	if main == nil || !main.differs(wanted) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), optionsLimit)
	defer cancel()
	if fixed := fixedChanged(wanted, main.name, main.description().Options, main.currentOptions()); len(fixed) > 0 {
		return fixed
	}
	return set.optionsRefused(ctx, wanted, main.name)
}

// modeRefused returns an error if the file has a new mode without a plugin here. It accepts a
// binary that exists but cannot run, because that can be repaired.
func (in installed) modeRefused(wanted *config.Host) error {
	mode := wanted.Mode
	if mode == in.Now().Mode || mode == config.Auto || wanted.Plugins[mode].Address != "" || in.exists(mode) {
		return nil
	}
	return config.Problems{wanted.Problem("mode", binaries.Missing(in.Begun, mode), "")}
}

// optionsLimit limits how long a plugin may take to check its options. After that the host
// starts without the check.
const optionsLimit = 5 * time.Second

// optionsRefused asks a mode's plugin what is wrong with its options. It ignores other reasons
// why the plugin cannot run here: they show when it starts, and can be repaired meanwhile.
func (in installed) optionsRefused(ctx context.Context, h *config.Host, mode string) error {
	s := h.Plugins[mode]
	if len(s.Options) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, optionsLimit)
	defer cancel()
	c, err := in.check(ctx, h, mode)
	if err != nil {
		return nil // the options are checked when the plugin starts
	}
	if refused, about := binaries.OptionRefused(h, mode, c); about {
		return config.Problems{refused}
	}
	return nil
}

// fixedChanged returns the options in h that differ from those the plugin runs with, but that its
// schema marks as fixed: a process with another value cannot take over from the serving one.
func fixedChanged(h *config.Host, name string, schemaText, runs []byte) (problems config.Problems) {
	var schema struct {
		Properties map[string]struct {
			Default any
			Fixed   bool `json:"x-pointsman-fixed"`
		}
	}
	var now, next map[string]any
	if json.Unmarshal(schemaText, &schema) != nil {
		return nil // nothing to compare
	}
	_ = json.Unmarshal(runs, &now) // there are none, or the plugin has accepted them
	_ = json.Unmarshal(h.Plugins[name].Options, &next)
	for _, option := range slices.Sorted(maps.Keys(schema.Properties)) {
		p := schema.Properties[option]
		if p.Fixed && !reflect.DeepEqual(cmp.Or(now[option], p.Default), cmp.Or(next[option], p.Default)) {
			problems = append(problems, h.Problem("plugins."+name+".options."+option, "cannot change while "+name+" serves, because the kernel would keep the rules of the former value",
				"change to another mode, then the option, then back"))
		}
	}
	return problems
}
