// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/phrase"
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
				bad(Missing(h, name))
			}
			continue
		}
		c, err := Check(ctx, f, settings)
		refused, isOption := OptionRefused(h, name, c)
		switch {
		case errors.Is(err, errNoAnswer):
			note(field, "the plugin cannot check its options: "+phrase.OneLine(err.Error()), "")
		case err != nil:
			bad(name + " cannot check its options: " + phrase.OneLine(err.Error()))
		case isOption:
			problems = append(problems, refused)
		case !c.Runs:
			bad(name + " cannot run on this node: " + phrase.OneLine(c.Why))
		}
	}
	return problems, notes
}

// OptionRefused returns the problem with the plugin's options in h. It returns false if the options
// are not the reason why the plugin cannot run.
func OptionRefused(h *config.Host, name string, c admin.Check) (config.Problem, bool) {
	if c.Runs || c.Field != "options" && !strings.HasPrefix(c.Field, "options.") {
		return config.Problem{}, false
	}
	field := "plugins." + name + "." + c.Field
	why := strings.TrimPrefix(phrase.OneLine(c.Why), c.Field+": ")
	return h.Problem(field, why, ""), true
}
