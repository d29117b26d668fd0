// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/supervise"
)

// Validate asks the plugins of this machine, concurrently, what is wrong with their settings in
// h. The notes are plugins that could not be asked, and other oddities.
func Validate(ctx context.Context, h *config.Host) (problems, notes config.Problems) {
	found := make(map[string]supervise.Found)
	for _, f := range Discover(h) {
		found[f.Name] = f
	}
	verdicts := make([]verdict, 0, len(h.Plugins)+1)
	for _, name := range asked(h) {
		verdicts = append(verdicts, verdict{host: h, name: name, found: found[name]})
	}
	var all sync.WaitGroup
	for i := range verdicts {
		all.Go(func() { verdicts[i].ask(ctx) })
	}
	all.Wait()
	for _, v := range verdicts {
		problems, notes = append(problems, v.problems...), append(notes, v.notes...)
	}
	return problems, notes
}

// asked returns the plugins that h refers to.
func asked(h *config.Host) []string {
	names := config.InUse(h.Mode)
	for name := range h.Plugins {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// A verdict is the result for one plugin.
type verdict struct {
	host  *config.Host
	name  string
	found supervise.Found // zero if there is none

	problems, notes config.Problems
}

func (v *verdict) ask(ctx context.Context) {
	field, settings := "plugins."+v.name, v.host.Plugins[v.name]
	if settings.Address != "" {
		v.note(field+".address", "it runs by itself, so that its options are not asked of it", "on its machine: "+supervise.Prefix+v.name+" check --options JSON")
		return
	}
	if v.found.Err != nil || v.found.Name == "" {
		v.missing(field)
		return
	}
	var check admin.Check
	var failed error
	var schema admin.Plugin
	var both sync.WaitGroup
	both.Go(func() { check, failed = Check(ctx, v.found, settings) })
	both.Go(func() { schema = Describe(ctx, v.found, settings.SHA256) })
	both.Wait()
	if v.problems = misfits(v.host, v.name, schema.Options); len(v.problems) > 0 {
		return // the plugin would report only the first problem, in less detail
	}
	refused, about := optionRefused(v.host, v.name, check)
	switch {
	case errors.Is(failed, errNoAnswer):
		v.note(field, "it cannot be asked: "+oneLine(failed.Error()), "")
	case failed != nil:
		v.bad("cannot be asked: " + oneLine(failed.Error()))
	case about:
		v.problems = append(v.problems, refused)
	case !check.Runs:
		v.bad("this node cannot run it: " + oneLine(check.Why))
	}
}

// missing adds a problem if the mode's own plugin is missing, and a note for a section of
// another missing plugin.
func (v *verdict) missing(field string) {
	if v.host.Mode == v.name {
		v.problems = append(v.problems, v.host.Problem("mode", missing(v.host, v.name), ""))
	} else if _, named := v.host.Plugins[v.name]; named {
		v.note(field, missing(v.host, v.name), "")
	}
}

// bad adds the reason why the plugin cannot serve: a problem for the mode, a note for other
// plugins.
func (v *verdict) bad(why string) {
	if v.host.Mode != v.name {
		v.note("plugins."+v.name, why, "")
		return
	}
	v.problems = append(v.problems, v.host.Problem("mode", v.name+": "+why, ""))
}

func (v *verdict) note(field, why, try string) {
	v.notes = append(v.notes, v.host.Problem(field, why, try))
}

// optionRefused returns the problem of the plugin's options in h, and whether c says that they
// are why the plugin does not run.
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
