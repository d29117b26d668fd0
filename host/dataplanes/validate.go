// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/launch"
)

// Validate asks the plugins of this machine what is wrong with their settings in h. The notes are
// plugins that could not be asked, and what is wrong with a plugin that the mode does not use.
func Validate(ctx context.Context, h *config.Host) (problems, notes config.Problems) {
	found := make(map[string]launch.Found)
	for _, f := range Discover(h) {
		found[f.Name] = f
	}
	names := append(config.InUse(h.Mode), slices.Collect(maps.Keys(h.Plugins))...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		f, field := found[name], "plugins."+name
		settings, named := h.Plugins[name]
		note := func(field, why, try string) { notes = append(notes, h.Problem(field, why, try)) }
		bad := func(why string) {
			if h.Mode == name {
				problems = append(problems, h.Problem("mode", why, ""))
			} else {
				note(field, why, "")
			}
		}
		switch {
		case settings.Address != "":
			note(field+".address", "the options are not checked, because something else runs the plugin", "on its machine: "+launch.Prefix+name+" check --options JSON")
			continue
		case f.Err != nil || f.Name == "":
			if named || h.Mode == name {
				bad(missing(h, name))
			}
			continue
		}
		c, err := Check(ctx, f, settings)
		refused, isOption := optionRefused(h, name, c)
		switch {
		case errors.Is(err, errNoAnswer):
			note(field, "the plugin cannot check its options: "+oneLine(err.Error()), "")
		case err != nil:
			bad(name + " cannot check its options: " + oneLine(err.Error()))
		case isOption:
			problems = append(problems, refused)
		case !c.Runs:
			bad(name + " cannot run on this node: " + oneLine(c.Why))
		}
	}
	return problems, notes
}

// optionRefused returns the problem with the plugin's options in h. It returns false if the options
// are not the reason why the plugin cannot run.
func optionRefused(h *config.Host, name string, c admin.Check) (config.Problem, bool) {
	if c.Runs || c.Field != "options" && !strings.HasPrefix(c.Field, "options.") {
		return config.Problem{}, false
	}
	field := "plugins." + name + "." + c.Field
	why := strings.TrimPrefix(oneLine(c.Why), c.Field+": ")
	return h.Problem(field, why, ""), true
}

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
	return config.Problems{wanted.Problem("mode", missing(in.Begun, mode), "")}
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
	if refused, about := optionRefused(h, mode, c); about {
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
